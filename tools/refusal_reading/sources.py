"""The modules of one unpacked release, parsed when they are asked for."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class ModuleRef:
    """A module by its dotted name; `module` is None where it is not the release's own."""

    name: str
    module: Module | None

    @property
    def identity(self) -> Any:
        return self.name


@dataclass(frozen=True, eq=False)
class FunctionRef:
    """A function of a module, or a lambda."""

    module: Module
    node: Any
    owner: ClassRef | None = None

    @property
    def identity(self) -> Any:
        return self.node

    @property
    def name(self) -> str:
        return str(getattr(self.node, "name", "<lambda>"))


@dataclass(frozen=True, eq=False)
class ClassRef:
    """A class of a module."""

    module: Module
    node: ast.ClassDef

    @property
    def identity(self) -> Any:
        return self.node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def bases(self) -> list[str]:
        return [ast.unparse(base).rpartition(".")[2] for base in self.node.bases]

    def member(self, name: str) -> ast.stmt | None:
        """The statement that defines a name in the class body."""
        for one in self.node.body:
            if isinstance(one, Function) and one.name == name:
                return one
            if isinstance(one, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in one.targets
            ):
                return one
            if (
                isinstance(one, ast.AnnAssign)
                and isinstance(one.target, ast.Name)
                and one.target.id == name
            ):
                return one
        return None


@dataclass(eq=False)
class Module:
    """One file: what its names stand for."""

    release: Release
    name: str
    path: Path
    tree: ast.Module
    names: dict[str, Any] = field(default_factory=dict)
    """Statements by the names that they define at the top level."""

    @property
    def place(self) -> str:
        """Its path below the package, as a traceback names it."""
        return str(self.path.relative_to(self.release.package))


class Release:
    """An unpacked release: the folder that holds `sglang`."""

    def __init__(self, version: str, folder: Path) -> None:
        self.version = version
        self.package = folder / "sglang"
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """A module of the package by its dotted name; None where there is none."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        first, _, rest = name.partition(".")
        if first != "sglang":
            return None
        base = self.package.joinpath(*rest.split(".")) if rest else self.package
        path = next(
            (p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None
        )
        if path is None:
            return None
        found = Module(self, name, path, ast.parse(path.read_text(encoding="utf-8")))
        _define(found.tree.body, found.names)
        return found


def _define(body: list[ast.stmt], names: dict[str, Any]) -> None:
    for one in body:
        if isinstance(one, (*Function.__args__, ast.ClassDef)):
            names[one.name] = one
        elif isinstance(one, ast.Assign):
            for target in one.targets:
                if isinstance(target, ast.Name) and not isinstance(
                    names.get(target.id), ast.ClassDef
                ):  # a class that is decorated by hand is still that class
                    names[target.id] = one
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            names[one.target.id] = one
        elif isinstance(one, ast.Import | ast.ImportFrom):
            for alias in one.names:
                if alias.name == "*":
                    names.setdefault("*", []).append((one, alias))
                    continue
                names[alias.asname or alias.name.partition(".")[0]] = (one, alias)
        elif isinstance(one, ast.If | ast.Try):
            _define(one.body, names)


def resolve(module: Module, name: str, depth: int = 0) -> Any:
    """What a name of a module stands for: a reference, an assigning statement, or None."""
    found = module.names.get(name)
    if depth > 8:
        return None
    if found is None:
        for statement, _ in module.names.get("*", ()):
            inner = imported(module, statement, ast.alias(name), depth)
            if inner is not None and not isinstance(inner, ModuleRef):
                return inner
        return None
    if isinstance(found, tuple):
        statement, alias = found
        return imported(module, statement, alias, depth)
    if isinstance(found, ast.ClassDef):
        return ClassRef(module, found)
    if isinstance(found, Function):
        return FunctionRef(module, found)
    return module, found


def imported(module: Module, statement: Any, alias: ast.alias, depth: int = 0) -> Any:
    """What an import brings under a name."""
    release = module.release
    if isinstance(statement, ast.Import):
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        return ModuleRef(name, release.module(name))
    base = statement.module or ""
    if statement.level:
        parts = module.name.split(".")
        if module.path.name != "__init__.py":
            parts = parts[:-1]
        parts = parts[: len(parts) - statement.level + 1]
        base = ".".join([*parts, base] if base else parts)
    source = release.module(base)
    if source is None:
        return ModuleRef(f"{base}.{alias.name}", None)
    found = resolve(source, alias.name, depth + 1)
    if found is None:
        inner = release.module(f"{base}.{alias.name}")
        return ModuleRef(f"{base}.{alias.name}", inner)
    return found
