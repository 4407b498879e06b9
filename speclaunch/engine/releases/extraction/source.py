"""A package on disk, read but never imported.

The value classes represent results of evaluation that are not plain Python values.
"""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from speclaunch.core import InputError, Problem, lazy

#: Distribution and import package to read.
PACKAGE = "sglang"

#: Files that a server never runs.  Their reads of an argument do not count.
_NOT_THE_SERVER = lazy(
    rf"{PACKAGE}/(test|eval|benchmark|multimodal_gen)/|{PACKAGE}/(auto_)?bench[^/]*\.py$|/tests?/"
)


_NATIVE = (".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")


class ExtractError(InputError):
    """Error: a missing file, a syntax error, or a package without arguments or version."""

    def __init__(self, message: str) -> None:
        super().__init__(Problem(message))


class PackageSource:
    """The source files of one ``sglang`` package, by path inside the wheel."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._trees: dict[str, ast.Module | None] = {}
        self._archive: zipfile.ZipFile | None = None
        if path.is_dir():
            package = path if path.name == PACKAGE else path / PACKAGE
            if not package.is_dir():
                raise ExtractError(f"{path}: no {PACKAGE} package in this directory")
            self._root = package.parent
            files = [
                file.relative_to(self._root).as_posix()
                for file in package.rglob("*")
                if file.suffix in (".py", *_NATIVE)
            ]
        elif path.is_file():
            try:
                self._archive = zipfile.ZipFile(path)
            except zipfile.BadZipFile as error:
                raise ExtractError(f"{path}: not a wheel ({error})") from error
            files = [
                name
                for name in self._archive.namelist()
                if name.startswith(f"{PACKAGE}/") and name.endswith((".py", *_NATIVE))
            ]
        else:
            raise ExtractError(f"{path}: no such file or directory")
        self._names = sorted(name for name in files if name.endswith(".py"))
        self._native = sorted(name for name in files if name.endswith(_NATIVE))
        if not self._names:
            raise ExtractError(f"{path}: no {PACKAGE} package found")
        self._known = frozenset(files)

    def __enter__(self) -> PackageSource:
        return self

    def __exit__(self, *_: object) -> None:
        if self._archive is not None:
            self._archive.close()

    def read(self, name: str) -> str | None:
        """Return a file's text (``sglang/srt/server_args.py``); None if it does not exist."""
        if name not in self._known:
            return None
        try:
            if self._archive is not None:
                data = self._archive.read(name)
            else:
                data = (self._root / name).read_bytes()
        except (OSError, zipfile.BadZipFile) as error:
            raise ExtractError(f"{self.path}: {name}: {error}") from error
        return data.decode("utf-8", errors="replace")

    def tree(self, name: str) -> ast.Module | None:
        if name not in self._trees:
            text = self.read(name)
            self._trees[name] = None if text is None else self.parse(name, text)
        return self._trees[name]

    def parse(self, name: str, text: str) -> ast.Module:
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            reason = getattr(error, "msg", None) or str(error)
            raise ExtractError(f"{self.path}: {name}:{line}: cannot be parsed: {reason}") from error

    def module_file(self, dotted: str) -> str | None:
        base = dotted.replace(".", "/")
        for name in (f"{base}.py", f"{base}/__init__.py"):
            if name in self._known:
                return name
        return None

    def server_files(self) -> Iterator[str]:
        """Yield the files that a server may run; those that likely read arguments come first."""
        files = [name for name in self._names if not _NOT_THE_SERVER.search(name)]
        yield from sorted(files, key=lambda name: (name.count("/"), name))

    def native_files(self) -> Iterator[str]:
        """Yield the C++ and CUDA sources that a server may compile at startup."""
        yield from (name for name in self._native if not _NOT_THE_SERVER.search(name))

    def version(self, otherwise: str | None = None) -> str:
        """Return the version that the package states, else `otherwise`. Raises ExtractError."""
        for name in (f"{PACKAGE}/version.py", f"{PACKAGE}/_version.py"):
            for node in ast.walk(self.tree(name) or ast.Module(body=[], type_ignores=[])):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                    value = node.value.value
                    if "__version__" in names and isinstance(value, str) and value != "0.0.0.dev0":
                        return value
        for text in self.metadata():
            found = re.search(r"^Version: *(\S+)", text, re.MULTILINE)
            if found:
                return found[1]
        if otherwise is not None:
            return otherwise
        raise ExtractError(f"{self.path}: the package does not state its version")

    def metadata(self) -> Iterator[str]:
        """Yield the texts of METADATA files. A proper installation has exactly one."""
        if self._archive is not None:
            for name in self._archive.namelist():
                if re.fullmatch(rf"{PACKAGE}-[^/]*\.dist-info/METADATA", name):
                    yield self._archive.read(name).decode("utf-8", errors="replace")
        else:
            for file in sorted(self._root.glob(f"{PACKAGE}-*.dist-info/METADATA")):
                yield file.read_text(encoding="utf-8", errors="replace")


class OpaqueValue(Struct, frozen=True):
    """A value that cannot be known without running the engine. ``text`` is its source text."""

    text: str

    def __bool__(self) -> bool:
        """False: an unknown condition counts as unmet (no accelerator, plugin or variable)."""
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
        return self.node.name


class FunctionValue(Struct, frozen=True):
    """A function or method of the package; ``owner`` is a method's class."""

    file: str
    node: ast.FunctionDef
    owner: ClassValue | None = None

    @property
    def name(self) -> str:
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
