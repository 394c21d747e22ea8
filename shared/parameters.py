"""Parameters of a notebook: read from its parameter cell, overridden, and checked.

A parameter cell holds one plain literal a line, with a type annotation and a comment that says what
it is and its unit. Below them stand the conditions that the values must meet, as Python expressions
over the parameters::

    points: int = 200  # samples on a uniform grid
    frequencies: list[int] = [5, 10]  # periods over [0, 1)
    # require points >= 3
    # require all(0 < k < points / 2 for k in frequencies)
"""

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.errors import WrongRequest, nearest
from shared.values import ValueRefused, annotation_from, cast, parse

MARK = "require "
CONDITION_NAMES = {"all": all, "any": any, "len": len, "max": max, "min": min, "sorted": sorted, "set": set}


@dataclass(frozen=True)
class Parameter:
    """One line of a parameter cell."""

    name: str
    annotation: Any
    type_text: str
    default: Any
    meaning: str


@dataclass(frozen=True)
class ParameterCell:
    """What a parameter cell declares: parameters by name, in order, and conditions on them."""

    parameters: dict[str, Parameter]
    conditions: list[str]


def read_cell(source: str) -> ParameterCell:
    """Read the source of a parameter cell.

    Raises:
        ValueError: a line is not ``name: type = literal``, or its value is not of its type.
    """
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = {}
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value):
            raise ValueError(f"line {node.lineno} of the parameter cell is not 'name: type = literal'")
        type_text, name = ast.unparse(node.annotation), node.target.id
        annotation = annotation_from(type_text)
        default = cast(ast.literal_eval(node.value), annotation)
        found[name] = Parameter(name, annotation, type_text, default, comments.pop(node.end_lineno, ""))
    conditions = [text.removeprefix(MARK) for text in comments.values() if text.startswith(MARK)]
    return ParameterCell(found, conditions)


def parse_assignments(cell: ParameterCell, assignments: Iterable[str]) -> dict[str, Any]:
    """The values that ``NAME=VALUE`` texts set.

    Raises:
        WrongRequest: a text has no equals sign, a name is unknown or a value is not of its type.
    """
    values = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise WrongRequest(f"-p {assignment}: a parameter is set as NAME=VALUE")
        parameter = _known(cell.parameters, name.strip())
        try:
            values[parameter.name] = parse(text, parameter.annotation)
        except ValueRefused:
            raise _not_of_type(parameter, text) from None
    return values


def resolve(cell: ParameterCell, *overrides: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters, with later overrides over earlier ones over the defaults, checked.

    Raises:
        WrongRequest: a name is unknown, a value is not of its type, or a condition is not met.
    """
    values = {name: parameter.default for name, parameter in cell.parameters.items()}
    for override in overrides:
        for name, value in override.items():
            parameter = _known(cell.parameters, name)
            try:
                values[name] = cast(value, parameter.annotation)
            except ValueRefused:
                raise _not_of_type(parameter, repr(value)) from None
    for condition in cell.conditions:
        _check(condition, values)
    return values


def _known(parameters: Mapping[str, Parameter], name: str) -> Parameter:
    if name not in parameters:
        raise WrongRequest(f"no parameter is called {name!r}; {nearest(name, parameters)}")
    return parameters[name]


def _not_of_type(parameter: Parameter, text: str) -> WrongRequest:
    example = f"for example {parameter.default!r}"
    return WrongRequest(f"{parameter.name} = {text} is not of type {parameter.type_text}, {example}")


def _check(condition: str, values: Mapping[str, Any]) -> None:
    """Evaluate each part of a condition that ``and`` joins, so that a refusal names the one not met."""
    whole = ast.parse(condition, mode="eval").body
    joined = isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.And)
    for part in whole.values if joined else [whole]:
        text = ast.unparse(part)
        try:
            met = eval(
                text, {"__builtins__": {}, **CONDITION_NAMES, **values}
            )  # from a notebook of this project
        except (ArithmeticError, TypeError, ValueError, LookupError):  # such as a division by zero
            met = False
        if not met:
            mentioned = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
            given = ", ".join(f"{name} = {value!r}" for name, value in values.items() if name in mentioned)
            raise WrongRequest(f"{given}: {text} is required")
