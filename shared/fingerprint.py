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
# The decorator that makes a measurement; what it says is in the key, or is how a record is checked.
CACHING_DECORATOR = "measurement"

Place = tuple["Module", str]  # a module and a name at its top level


class UnknownSource(ValueError):
    """A declared name has no definition in the package, or its module cannot be followed."""


@dataclass(frozen=True)
class Module:
    """The top level of one source file of the package."""

    path: Path
    definitions: dict[str, ast.AST]
    statements: dict[str, list[ast.AST]]  # everything but definitions that binds or changes a name
    imports: dict[str, str]  # local name -> dotted name below the package; "" is the package


@functools.cache
def read_module(path: Path) -> Module:
    """Parse ``path`` and list what its top level defines, assigns, changes and imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    definitions: dict[str, ast.AST] = {}
    statements: dict[str, list[ast.AST]] = {}
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            definitions[node.name] = node
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            for name in _touched(node):
                statements.setdefault(name, []).append(node)
    return Module(path, definitions, statements, _imports(tree, path))


def _touched(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module's top level binds, or may change in place."""
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript):  # X.update(...), X["key"] = ...
            base = node.value
            while isinstance(base, ast.Attribute | ast.Subscript):
                base = base.value
            changes = isinstance(node.ctx, ast.Store) or isinstance(statement, ast.Expr)
            if isinstance(base, ast.Name) and changes:
                found.add(base.id)
    return found


def _imports(tree: ast.Module, path: Path) -> dict[str, str]:
    """What a module imports from the package, at its top level or inside a function."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            if node.level or (parts[0] == "shared" and any(alias.name == "*" for alias in node.names)):
                raise UnknownSource(f"{path}:{node.lineno}: relative and star imports cannot be followed")
            if parts[0] == "shared":
                for alias in node.names:
                    found[alias.asname or alias.name] = ".".join([*parts[1:], alias.name])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "shared":
                    found[alias.asname or "shared"] = (
                        ".".join(alias.name.split(".")[1:]) if alias.asname else ""
                    )
    return found


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
    """Hash the definitions called ``names``, and the constants and helpers they refer to.

    A constant is what a module assigns or changes at its top level; a helper is a function or class
    whose name starts with an underscore, or a base class. Both are followed through imports, and in
    turn. Public functions are not: those that matter are declared.

    Args:
        names: dotted names below the package, for example ``probes.spectrum.amplitudes``.
        package: the folder of the package.

    Raises:
        UnknownSource: a name has no definition, or a module imports in a way that cannot be followed.
    """
    parts = {name: [_serialised(tree) for tree in trees] for name, trees in _closure(names, package).items()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def covered(names: Iterable[str], package: Path = paths.PACKAGE) -> set[str]:
    """The dotted names of everything that :func:`fingerprint` of ``names`` hashes."""
    return set(_closure(names, package))


def _closure(names: Iterable[str], package: Path) -> dict[str, list[ast.AST]]:
    found: dict[str, list[ast.AST]] = {}
    pending: list[tuple[Module, ast.AST]] = []
    for name in names:
        module, node = definition(name, package)
        found[name] = [node]
        pending.append((module, node))
    while pending:
        for source, name in _references(*pending.pop(), package):
            relative = source.path.relative_to(package).with_suffix("")
            dotted = f"{'.'.join(relative.parts)}.{name}".replace("__init__.", "")
            if dotted not in found and (trees := _followed(source, name)):
                found[dotted] = trees
                pending += [(source, tree) for tree in trees]
    return found


def _followed(source: Module, name: str) -> list[ast.AST]:
    """The statements behind a constant, and the definition of a private helper."""
    trees = list(source.statements.get(name, []))
    if name.startswith("_") and name in source.definitions:
        trees.append(source.definitions[name])
    return trees


def _references(module: Module, node: ast.AST, package: Path) -> Iterator[Place]:
    """Every name at the top level of a module of the package that ``node`` refers to."""
    for child in ast.walk(node):
        chain = _chain(child)
        if not chain:
            continue
        yield module, chain[0]
        if chain[0] in module.imports:
            yield from _resolved(".".join([*filter(None, [module.imports[chain[0]]]), *chain[1:]]), package)
    for base in getattr(node, "bases", []):  # of a class: its bases' attributes are its own
        chain = _chain(base)
        if chain and (chain[0] in module.definitions or chain[0] in module.imports):
            yield from _base_class(module, chain, package)


def _chain(node: ast.AST) -> list[str]:
    """``["a", "b", "c"]`` for the expression a.b.c, and nothing for any other."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def _resolved(dotted: str, package: Path) -> Iterator[Place]:
    """The places that a dotted name below the package means, through modules that pass it on."""
    try:
        source, rest = locate(dotted, package)
    except UnknownSource:
        return
    if rest:
        yield source, rest[0]
        passed_on = source.imports.get(rest[0])
        if passed_on and passed_on != dotted:
            yield from _resolved(".".join([passed_on, *rest[1:]]), package)


def _base_class(module: Module, chain: list[str], package: Path) -> Iterator[Place]:
    """The places that the attributes of a base class of the package come from."""
    places: list[Place] = [(module, chain[0])]
    if chain[0] in module.imports:
        places = list(_resolved(".".join([module.imports[chain[0]], *chain[1:]]), package))
    for source, name in places:
        base = source.definitions.get(name)
        if isinstance(base, ast.ClassDef):
            yield from _references(source, base, package)
            source.statements.setdefault(f"class {name}", [base])
            yield source, f"class {name}"


def _serialised(node: object) -> str:
    """A text of the tree that leaves out what has no effect and what versions of Python add."""
    if isinstance(node, ast.AST):
        fields = {name: value for name, value in ast.iter_fields(node) if name not in IGNORED_FIELDS}
        if isinstance(node, DEFINITIONS):
            fields["decorator_list"] = [d for d in node.decorator_list if not _caches(d)]
            if ast.get_docstring(node, clean=False) is not None:
                fields["body"] = node.body[1:]
        if isinstance(node, ast.JoinedStr):  # early versions of 3.12 put empty strings into f-strings
            empty = (isinstance(value, ast.Constant) and value.value == "" for value in node.values)
            fields["values"] = [v for v, drop in zip(node.values, empty, strict=True) if not drop]
        inner = " ".join(f"{k}={_serialised(v)}" for k, v in sorted(fields.items()) if v not in (None, []))
        return f"({type(node).__name__} {inner})"
    if isinstance(node, list):
        return "[" + " ".join(_serialised(entry) for entry in node) + "]"
    return f"{type(node).__name__}:{node!a}"


def _caches(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and _chain(decorator.func)[-1:] == [CACHING_DECORATOR]
