"""Values of parameters: parsed from text, cast to a declared type, written canonically."""

import ast
import inspect
import json
import sys
import types
import typing
from typing import Any, Literal

ANNOTATION_NAMES = {"Literal": Literal}


class ValueRefused(ValueError):
    """A value is not of the declared type; the message says what is allowed."""


def annotation_from(source: str) -> Any:
    """The type that an annotation's source names, for example ``list[int] | None``."""
    return eval(source, {**ANNOTATION_NAMES})  # the source is a notebook of this project


def describe(annotation: Any) -> str:
    """The annotation as a person writes it."""
    if annotation is type(None):
        return "None"
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(annotation))
    return inspect.formatannotation(annotation)


def cast(value: Any, annotation: Any) -> Any:
    """Return ``value`` as the declared type, or raise :class:`ValueRefused`.

    An int is taken for a float, a tuple for a list; nothing else is converted, so that 2.5 never
    becomes 2 and "12" never becomes 12. Floats must be finite.
    """
    origin = typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        return _cast_to_union(value, typing.get_args(annotation))
    if origin is Literal:
        for choice in typing.get_args(annotation):
            if value == choice and type(value) is type(choice):
                return value
    elif origin is list or annotation is list:
        if isinstance(value, list | tuple):
            (item,) = typing.get_args(annotation) or (Any,)
            return [cast(entry, item) for entry in value]
    elif annotation is float:
        if type(value) in (int, float) and abs(value) <= sys.float_info.max:
            return float(value)
    elif annotation is Any or type(value) is annotation:
        return value
    elif value is None and annotation in (None, type(None)):
        return None
    raise ValueRefused(f"{value!r} is not {describe(annotation)}")


def _cast_to_union(value: Any, members: tuple[Any, ...]) -> Any:
    for member in sorted(members, key=lambda member: type(value) is not member):
        try:
            return cast(value, member)
        except ValueRefused:
            continue
    raise ValueRefused(f"{value!r} is not {' or '.join(describe(m) for m in members)}")


def parse(text: str, annotation: Any) -> Any:
    """The value that ``text``, typed on a command line, has under the declared type.

    JSON and Python literals are both understood (``false``, ``None``, ``[0, 1]``, ``1e-3``); text
    that is neither is taken as a string, which only a string parameter accepts.
    """
    try:
        return cast(_literal(text), annotation)
    except ValueRefused:
        try:
            return cast(text, annotation)  # a string parameter set to digits, say
        except ValueRefused:
            pass
        raise


def _literal(text: str) -> Any:
    for reader in (json.loads, ast.literal_eval):
        try:
            return reader(text.strip())
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
