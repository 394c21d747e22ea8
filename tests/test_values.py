import json
from typing import Literal

import pytest

from shared.values import ValueRefused, canonical_json, cast, describe, parse


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("3", int, 3),
        ("1e-3", float, 1e-3),
        ("2", float, 2.0),
        ("false", bool, False),
        ("True", bool, True),
        ("null", int | None, None),
        ("None", str | None, None),
        ("[0,1]", list[int], [0, 1]),
        ("(1, 2)", list[float], [1.0, 2.0]),
        ("[[1, 2], [3]]", list[list[int]], [[1, 2], [3]]),
        ("1_000", int, 1000),
        ("cpu", str, "cpu"),
        ("12", str, "12"),
        ("'quoted'", str, "quoted"),
        ("b", Literal["a", "b"], "b"),
        ("5", int | float, 5),
        ("5.0", int | float, 5.0),
    ],
)
def test_parse_gives_values_as_what_they_are(text, annotation, expected):
    value = parse(text, annotation)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "annotation"),
    [
        ("abc", int),
        ("2.5", int),
        ("2.0", int),
        ("1e3", int),
        ("true", int),
        ("1", bool),
        ("increasing", list[float]),
        ("[1, 'a']", list[int]),
        ("[1, 2.5]", list[int]),
        ("NaN", float),
        ("1e999", float),
        ("c", Literal["a", "b"]),
        ("null", int),
        ("", int),
        ("__import__('os')", int),
        ("{[]}", int),
        ("{{}: 1}", list[int]),
        ("1" + "0" * 400, float),
    ],
)
def test_parse_refuses_other_types(text, annotation):
    with pytest.raises(ValueRefused):
        parse(text, annotation)


def test_cast_takes_a_tuple_for_a_list_and_an_int_for_a_float():
    assert cast((1, 2), list[float]) == [1.0, 2.0]
    assert [type(entry) for entry in cast((1, 2), list[float])] == [float, float]


def test_canonical_json_does_not_depend_on_order():
    assert canonical_json({"b": 1, "a": [1.0]}) == canonical_json({"a": [1.0], "b": 1}) == '{"a":[1.0],"b":1}'
    assert json.loads(canonical_json({"a": None})) == {"a": None}


def test_descriptions_read_as_written():
    assert describe(list[int]) == "list[int]"
    assert describe(Literal["a", "b"]) == "one of 'a', 'b'"
    assert describe(int | None) == "int | None"
