import pytest

from shared.errors import WrongRequest
from shared.parameters import parse_assignments, read_cell, resolve

CELL = read_cell(
    """
points: int = 200  # samples, with a # in the comment
rate: float = 1  # per iteration
frequencies: list[int] = [5, 10]  # periods
device: str = "auto"  # place
# require all(0 < k < points / 2 for k in frequencies)
# require rate > 0
"""
)


def test_a_cell_is_read_as_written():
    assert list(CELL.parameters) == ["points", "rate", "frequencies", "device"]
    assert CELL.parameters["rate"].default == 1.0
    assert type(CELL.parameters["rate"].default) is float
    assert CELL.parameters["points"].meaning == "samples, with a # in the comment"
    assert len(CELL.conditions) == 2


@pytest.mark.parametrize("source", ["x = 1", "x: int", "x: int = 'a'", "x: int = 1 + y", "print(1)"])
def test_a_cell_of_anything_else_is_refused(source):
    with pytest.raises(ValueError):  # noqa: PT011  which subclass depends on the fault
        read_cell(source)


def test_overrides_apply_in_order():
    values = resolve(CELL, {"points": 50, "rate": 2}, parse_assignments(CELL, ["points=60"]))
    assert values == {"points": 60, "rate": 2.0, "frequencies": [5, 10], "device": "auto"}


def test_a_misspelt_name_is_refused_with_the_nearest():
    with pytest.raises(WrongRequest, match="'point'; did you mean points"):
        parse_assignments(CELL, ["point=3"])


def test_a_wrong_type_is_refused_with_an_example():
    with pytest.raises(WrongRequest, match=r"points = 2.5 is not of type int, for example 200"):
        parse_assignments(CELL, ["points=2.5"])
    with pytest.raises(WrongRequest, match=r"points = 2.5 is not of type int"):
        resolve(CELL, {"points": 2.5})


def test_an_assignment_needs_an_equals_sign():
    with pytest.raises(WrongRequest, match="NAME=VALUE"):
        parse_assignments(CELL, ["points"])


def test_a_condition_is_checked_across_parameters_and_names_them():
    with pytest.raises(WrongRequest, match=r"points = 20, frequencies = \[5, 10\]: all"):
        resolve(CELL, {"points": 20})
    with pytest.raises(WrongRequest, match=r"rate = 0.0: rate > 0"):
        resolve(CELL, {"rate": 0})


def test_of_joined_conditions_only_the_one_not_met_is_named():
    cell = read_cell("n: int = 1  # number\nm: int = 2  # other\n# require n >= 1 and m >= 1")
    with pytest.raises(WrongRequest, match=r"^m = 0: m >= 1 is required$"):
        resolve(cell, {"m": 0})


def test_a_condition_that_cannot_be_evaluated_is_not_met():
    cell = read_cell("n: int = 1  # number\n# require 1 / n > 0")
    with pytest.raises(WrongRequest, match=r"n = 0: 1 / n > 0"):
        resolve(cell, {"n": 0})
