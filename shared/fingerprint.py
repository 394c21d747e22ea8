"""Fingerprints of source code: what a measurement's numbers depend on, in sixteen digits.

A fingerprint is a hash of syntax trees. Comments, layout and docstrings do not count; names,
literals and operators do. It needs no import of the code it reads, and it is the same on every
version of Python that can parse the code.
"""

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shared import paths

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Fields that hold no meaning, or that only some versions of Python have.
IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_params", "type_ignores"}


class UnknownSource(ValueError):
    """A declared name has no definition in the package."""


@dataclass(frozen=True)
class Module:
    """The top level of one source file of the package."""

    path: Path
    definitions: dict[str, ast.AST]
    constants: dict[str, ast.AST]
    imports: dict[str, str]  # local name -> dotted name below the package


@functools.cache
def read_module(path: Path) -> Module:
    """Parse ``path`` and list what its top level defines, assigns and imports from the package."""
    definitions, constants, imports = {}, {}, {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, DEFINITIONS):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        constants[name.id] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "shared":
            below = node.module.split(".")[1:]
            for alias in node.names:
                imports[alias.asname or alias.name] = ".".join([*below, alias.name])
    return Module(path, definitions, constants, imports)


def locate(name: str, package: Path = paths.PACKAGE) -> tuple[Module, list[str]]:
    """The module that a dotted name below the package lies in, and the rest of the name."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        stem = package.joinpath(*parts[:depth])
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return read_module(path), parts[depth:]
    raise UnknownSource(f"{name}: no such module below {package}")


def definition(name: str, package: Path = paths.PACKAGE) -> tuple[Module, ast.AST]:
    """The syntax tree of a function, class or method of the package."""
    module, rest = locate(name, package)
    found: ast.AST | None = module.definitions.get(rest[0]) if rest else None
    for part in rest[1:]:
        members = found.body if isinstance(found, ast.ClassDef) else []
        found = next((m for m in members if isinstance(m, DEFINITIONS) and m.name == part), None)
    if found is None:
        raise UnknownSource(f"{name}: {module.path.name} defines no {'.'.join(rest) or 'such name'}")
    return module, found


def fingerprint(names: Iterable[str], package: Path = paths.PACKAGE) -> str:
    """Hash the definitions called ``names``, and the constants and private helpers they refer to.

    A constant is what a module assigns at its top level; a private helper is a function or class
    whose name starts with an underscore. Both are followed through imports, and in turn.

    Args:
        names: dotted names below the package, for example ``probes.spectrum.amplitudes``.
        package: the folder of the package.

    Raises:
        UnknownSource: a name has no definition.
    """
    parts = {name: _serialised(tree) for name, tree in _closure(names, package).items()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def covered(names: Iterable[str], package: Path = paths.PACKAGE) -> set[str]:
    """The dotted names of everything that :func:`fingerprint` of ``names`` hashes."""
    return {name.replace(":", ".") for name in _closure(names, package)}


def _closure(names: Iterable[str], package: Path) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for name in names:
        module, node = definition(name, package)
        found[name] = node
        found |= dict(_helpers(module, node, package))
    return found


def _helpers(module: Module, node: ast.AST, package: Path) -> Iterator[tuple[str, ast.AST]]:
    """The constants and private helpers that ``node`` refers to, and those that they refer to."""
    pending, seen = [(module, node)], set()
    while pending:
        for source, name in _references(*pending.pop(), package):
            tree = source.constants.get(name) or (name.startswith("_") and source.definitions.get(name))
            if tree and (source.path, name) not in seen:
                seen.add((source.path, name))
                relative = source.path.relative_to(package).with_suffix("")
                yield f"{'.'.join(relative.parts)}:{name}", tree
                pending.append((source, tree))


def _references(module: Module, node: ast.AST, package: Path) -> Iterator[tuple[Module, str]]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield module, child.id
            dotted = module.imports.get(child.id)
        elif isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name):
            base = module.imports.get(child.value.id)
            dotted = base and f"{base}.{child.attr}"
        else:
            continue
        if dotted:
            source, rest = locate(dotted, package)
            if len(rest) == 1:
                yield source, rest[0]


def _serialised(node: object) -> str:
    """A text of the tree that leaves out what has no effect and what versions of Python add."""
    if isinstance(node, ast.AST):
        fields = {name: value for name, value in ast.iter_fields(node) if name not in IGNORED_FIELDS}
        if isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None:
            fields["body"] = node.body[1:]
        if isinstance(node, ast.JoinedStr):  # early versions of 3.12 put empty strings into f-strings
            empty = (isinstance(value, ast.Constant) and value.value == "" for value in node.values)
            fields["values"] = [v for v, drop in zip(node.values, empty, strict=True) if not drop]
        inner = " ".join(f"{k}={_serialised(v)}" for k, v in sorted(fields.items()) if v not in (None, []))
        return f"({type(node).__name__} {inner})"
    if isinstance(node, list):
        return "[" + " ".join(_serialised(entry) for entry in node) + "]"
    return f"{type(node).__name__}:{node!a}"
