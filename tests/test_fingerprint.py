from pathlib import Path

import pytest

from shared import fingerprint as module
from shared.fingerprint import UnknownSource, covered, fingerprint

SOURCE = '''"""Module."""
import shared.other as renamed
from shared import other
from shared.other import LIMIT, helper, passed_on

SCALE = 2
OFFSET = SCALE + 1
OFFSET += 1
TABLE = {"a": 1}
TABLE["b"] = 2
TABLE.update(c=3)
UNRELATED = 5
try:
    GUARDED = 7
except ImportError:
    GUARDED = 8


def measure(x):
    """Docstring."""
    # a comment
    from shared.other import LATE

    total = TABLE["a"] + GUARDED + renamed.DEEP + LATE + passed_on + other._hidden(x)
    return _inner(x) * OFFSET + LIMIT + helper(x) + total


def _inner(x):
    return f"{x!r:>{LIMIT}}" if other.MODE else x


class Base:
    weight = 4


class Thing(Base):
    """A class."""

    def method(self):
        return 1
'''
OTHER = """from shared.third import passed_on

LIMIT = 10
MODE = True
DEEP = 11
LATE = 12


def helper(x):
    return x


def _hidden(x):
    return x + 13
"""
THIRD = "passed_on = 14\n"


@pytest.fixture
def package(tmp_path: Path):
    def make(source: str = SOURCE, other: str = OTHER, third: str = THIRD) -> Path:
        module.read_module.cache_clear()
        (tmp_path / "one.py").write_text(source)
        (tmp_path / "other.py").write_text(other)
        (tmp_path / "third.py").write_text(third)
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
        ("OFFSET += 1", "OFFSET += 2"),
        ('TABLE["b"] = 2', 'TABLE["b"] = 3'),
        ("update(c=3)", "update(c=4)"),
        ("GUARDED = 7", "GUARDED = 9"),
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
    for constant in ("11", "12", "13"):
        assert of(package(other=OTHER.replace(constant, "99"))) != reference
    assert of(package(third=THIRD.replace("14", "15"))) != reference
    assert of(package(other=OTHER.replace("return x\n\n", "return 2 * x\n\n"))) == reference
    declared = of(package(), "one.measure", "other.helper")
    assert (
        of(package(other=OTHER.replace("return x\n\n", "return 2 * x\n\n")), "one.measure", "other.helper")
        != declared
    )


def test_covered_names_what_is_hashed(package):
    expected = {"one.measure", "one.OFFSET", "one.SCALE", "one._inner", "one.TABLE", "one.GUARDED"}
    expected |= {f"other.{name}" for name in ("LIMIT", "MODE", "DEEP", "LATE", "_hidden")}
    assert covered(["one.measure"], package()) == expected | {"third.passed_on"}


def test_attributes_of_a_base_class_count(package):
    reference = of(package(), "one.Thing")
    assert of(package(SOURCE.replace("weight = 4", "weight = 5")), "one.Thing") != reference


def test_what_makes_a_measurement_does_not_count_and_other_decorators_do(package):
    decorated = SOURCE.replace("def measure", "@measurement(version=1)\ndef measure")
    assert of(package(decorated)) == of(package())
    assert of(package(SOURCE.replace("def measure", "@other.twice\ndef measure"))) != of(package())


@pytest.mark.parametrize(
    "line", ["from shared.other import *", "from . import other", "from .other import LIMIT"]
)
def test_imports_that_cannot_be_followed_are_refused(package, line):
    with pytest.raises(UnknownSource, match=r"one\.py:1: relative and star imports"):
        of(package(SOURCE.replace('"""Module."""', line)))


@pytest.mark.parametrize("name", ["one.missing", "nowhere.f", "one.Thing.missing", "one"])
def test_an_unknown_name_is_refused(package, name):
    with pytest.raises(UnknownSource, match=name.rsplit(".", 1)[0]):
        of(package(), name)


def test_a_method_can_be_named(package):
    assert of(package(), "one.Thing.method") != of(package(), "one.Thing")


def test_every_python_gives_the_same(package):
    """The value is pinned, so that every version that runs these tests must agree with it."""
    assert of(package()) == "f5db079efc7ef038"
