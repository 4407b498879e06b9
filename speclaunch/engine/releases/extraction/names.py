"""Module-level names, and the values of static evaluation.

Names come from assignments, later changes to them, and imports. The value classes represent
results of evaluation that are not plain Python values.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Any

from msgspec import Struct, field

from speclaunch.engine.releases.extraction.source import PackageSource


class OpaqueValue(Struct, frozen=True):
    """A value that cannot be known without running the engine. ``text`` is its source text."""

    text: str

    def __bool__(self) -> bool:
        """False: an unknown condition counts as unmet (no accelerator, no plugin, no variable
        set)."""
        return False

    @property
    def name(self) -> str:
        """The last part of a dotted name: ``loads`` for ``json.loads``."""
        return self.text.rpartition(".")[2]


class ClassValue(Struct, frozen=True):
    """A class of the package."""

    file: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """Name of the class."""
        return self.node.name


class FunctionValue(Struct, frozen=True):
    """A function or method of the package; ``owner`` is its class."""

    file: str
    node: ast.FunctionDef
    owner: ClassValue | None = None

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.node.name


class Instance(Struct, frozen=True):
    """An object created by calling a class of the package. ``arguments`` are positional."""

    of: ClassValue
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()


class EnumMember(Struct, frozen=True):
    """One member of an enumeration of the package."""

    name: str
    value: Any


class BoundMethod(Struct, frozen=True):
    """A method that was looked up on a value but not called yet."""

    receiver: Any
    name: str


class ExpressionScope(Struct):
    """The names visible to an expression: local, class-level and module-level."""

    file: str
    names: dict[str, Any] = field(default_factory=dict)
    owner: ClassValue | None = None


#: ``default=argparse.SUPPRESS``: without the flag, its destination is not set.
SUPPRESS = "<SUPPRESS>"


_MUTATORS = frozenset({"append", "extend", "add", "update", "insert", "remove", "discard"})


class Names(ABC):
    """Resolves names in the modules of one package."""

    def __init__(self, source: PackageSource) -> None:
        self.source = source
        self._globals: dict[tuple[str, str], tuple[Any] | None] = {}

    @abstractmethod
    def value(self, node: ast.expr, scope: ExpressionScope) -> Any:
        """Return the value of an expression; an OpaqueValue with its source text if unknown."""

    @abstractmethod
    def statement(
        self, node: ast.stmt, scope: ExpressionScope, only: str | None = None
    ) -> tuple[Any] | None:
        """Run a statement. Return its ``return`` value, wrapped. ``only``: bind only this name."""

    def lookup(self, name: str, scope: ExpressionScope) -> Any:
        """Return the value of a name: local, then global, then built-in."""
        if name in scope.names:
            return scope.names[name]
        assigned = {} if scope.owner is None else assignments(scope.owner)
        if name in assigned:
            return self.value(assigned[name], scope)
        found = self.global_name(scope.file, name)
        return OpaqueValue(name) if found is None else found[0]

    def global_name(self, file: str, name: str) -> tuple[Any] | None:
        """Return the value of a module-level name, wrapped; None if the module has no such name."""
        key = (file, name)
        if key not in self._globals:
            self._globals[key] = None  # a name that depends on itself is unknown
            self._globals[key] = self._module_value(file, name)
        found: tuple[Any] | None = self._globals[key]
        return found

    def _module_value(self, file: str, name: str) -> tuple[Any] | None:
        tree = self.source.tree(file)
        scope = ExpressionScope(file)
        for node in [] if tree is None else tree.body:
            if mentions(node, name):
                self.statement(node, scope, only=name)
        if name in scope.names:
            return (scope.names[name],)
        for node in [] if tree is None else tree.body:
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                origin = self._import_file(node, file)
                found = None if origin is None else self.global_name(origin, name)
                if found is not None:
                    return found
        return None

    def module_expression(self, file: str, name: str) -> tuple[str, ast.expr] | None:
        """Return the right-hand side of a module-level name's assignment, and its file."""
        for node in getattr(self.source.tree(file), "body", ()):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return file, node.value
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    origin = self._import_file(node, file)
                    if (alias.asname or alias.name) == name and origin is not None:
                        return self.module_expression(origin, alias.name)
        return None

    def _import_file(self, node: ast.ImportFrom, file: str) -> str | None:
        dotted = node.module or ""
        if node.level:
            folder = file.split("/")[: -node.level]
            dotted = ".".join([*folder, *([dotted] if dotted else [])])
        return self.source.module_file(dotted)

    def _import(self, node: ast.ImportFrom, scope: ExpressionScope, only: str | None) -> None:
        origin = self._import_file(node, scope.file)
        for alias in node.names:
            local = alias.asname or alias.name
            if only is not None and local != only:
                continue
            found = None if origin is None else self.global_name(origin, alias.name)
            if found is None:
                scope.names[local] = OpaqueValue(f"{node.module}.{alias.name}")
            else:
                scope.names[local] = found[0]


def assignments(owner: ClassValue) -> dict[str, ast.expr]:
    """Return the values that a class body assigns, by name and in order."""
    found: dict[str, ast.expr] = {}
    for node in owner.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is not None:
                found[node.target.id] = node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = node.value
    return found


def mentions(node: ast.stmt, name: str) -> bool:
    """True if a module-level statement binds or changes ``name``."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return node.name == name
    for part in ast.walk(node):
        match part:
            case ast.Name(id=found, ctx=ast.Store()) if found == name:
                return True
            case ast.alias() if (part.asname or part.name.partition(".")[0]) == name:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr=attr)) if (
                found == name and attr in _MUTATORS
            ):
                return True
            case ast.FunctionDef() | ast.ClassDef() if part.name == name:
                return True
            case _:
                pass
    return False
