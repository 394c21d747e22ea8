from pathlib import Path

import pytest

from shared import fingerprint as module
from shared.fingerprint import UnknownSource, covered, fingerprint

SOURCE = '''"""Module."""
from shared.other import LIMIT, helper
from shared import other

SCALE = 2
OFFSET = SCALE + 1
UNRELATED = 5


def measure(x):
    """Docstring."""
    # a comment
    return _inner(x) * OFFSET + LIMIT + helper(x)


def _inner(x):
    return f"{x!r:>{LIMIT}}" if other.MODE else x


class Thing:
    """A class."""

    def method(self):
        return 1
'''
OTHER = "LIMIT = 10\nMODE = True\n\n\ndef helper(x):\n    return x\n"


@pytest.fixture
def package(tmp_path: Path):
    def make(source: str = SOURCE, other: str = OTHER) -> Path:
        module.read_module.cache_clear()
        (tmp_path / "one.py").write_text(source)
        (tmp_path / "other.py").write_text(other)
        return tmp_path

    yield make
    module.read_module.cache_clear()


def of(package: Path, *names: str) -> str:
    return fingerprint(names or ["one.measure"], package)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    # a comment\n", "\n\n    # another\n"),
        ('    """Docstring."""\n', '    """Another docstring."""\n'),
        ("return _inner(x) * OFFSET", "return (\n        _inner(x)\n        * OFFSET)"),
        ("UNRELATED = 5", "UNRELATED = 6"),
        ("return 1", "return 2"),
    ],
)
def test_layout_and_unrelated_code_do_not_count(package, before, after):
    reference = of(package())
    assert before in SOURCE
    assert of(package(SOURCE.replace(before, after))) == reference


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("* OFFSET", "/ OFFSET"),
        ("SCALE = 2", "SCALE = 3"),
        ("OFFSET = SCALE + 1", "OFFSET = SCALE + 2"),
        ("!r:>", "!s:>"),
        ("else x", "else -x"),
    ],
)
def test_code_constants_and_private_helpers_count(package, before, after):
    reference = of(package())
    assert before in SOURCE
    assert of(package(SOURCE.replace(before, after))) != reference


def test_constants_of_other_modules_count_and_their_functions_only_when_declared(package):
    reference = of(package())
    assert of(package(other=OTHER.replace("10", "11"))) != reference
    assert of(package(other=OTHER.replace("True", "False"))) != reference
    assert of(package(other=OTHER.replace("return x", "return 2 * x"))) == reference
    declared = of(package(), "one.measure", "other.helper")
    assert (
        of(package(other=OTHER.replace("return x", "return 2 * x")), "one.measure", "other.helper")
        != declared
    )


def test_covered_names_what_is_hashed(package):
    expected = {"one.measure", "one.OFFSET", "one.SCALE", "one._inner", "other.LIMIT", "other.MODE"}
    assert covered(["one.measure"], package()) == expected


@pytest.mark.parametrize("name", ["one.missing", "nowhere.f", "one.Thing.missing", "one"])
def test_an_unknown_name_is_refused(package, name):
    with pytest.raises(UnknownSource, match=name.rsplit(".", 1)[0]):
        of(package(), name)


def test_a_method_can_be_named(package):
    assert of(package(), "one.Thing.method") != of(package(), "one.Thing")


def test_every_python_gives_the_same(package):
    """The value is pinned, so that every version that runs these tests must agree with it."""
    assert of(package()) == "62560cc6d4347d0a"
