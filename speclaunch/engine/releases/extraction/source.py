"""A package on disk, installed or a wheel, that is read file by file and never imported."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from speclaunch.core import InputError, Problem, lazy

#: Distribution and import package to read.
PACKAGE = "sglang"

#: Files that a server never runs.  Their reads of an argument do not count.
_NOT_THE_SERVER = lazy(
    rf"{PACKAGE}/(test|eval|benchmark|multimodal_gen)/|{PACKAGE}/(auto_)?bench[^/]*\.py$|/tests?/"
)


_NATIVE = (".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")


class ExtractError(InputError):
    """Raised for a missing file, a syntax error, or a package without arguments or version."""

    def __init__(self, message: str) -> None:
        super().__init__(Problem(message))


class PackageSource:
    """The source files of one ``sglang`` package, by their path inside the wheel."""

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
            raise ExtractError(f"{path}: no {PACKAGE} package in it")
        self._known = frozenset(files)

    def __enter__(self) -> PackageSource:
        return self

    def __exit__(self, *_: object) -> None:
        if self._archive is not None:
            self._archive.close()

    def read(self, name: str) -> str | None:
        """Return the text of one file (``sglang/srt/server_args.py``); None if it does not
        exist."""
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
        """Return the syntax tree of one file; None if it does not exist."""
        if name not in self._trees:
            text = self.read(name)
            self._trees[name] = None if text is None else self.parse(name, text)
        return self._trees[name]

    def parse(self, name: str, text: str) -> ast.Module:
        """Return the syntax tree of ``text``; raise :class:`ExtractError` with file and line."""
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            reason = getattr(error, "msg", None) or str(error)
            raise ExtractError(f"{self.path}: {name}:{line}: can't be parsed: {reason}") from error

    def module_file(self, dotted: str) -> str | None:
        """Return the file of a dotted module name; None if this package does not contain it."""
        base = dotted.replace(".", "/")
        for name in (f"{base}.py", f"{base}/__init__.py"):
            if name in self._known:
                return name
        return None

    def server_files(self) -> Iterator[str]:
        """Yield every file that a server may run, starting with those most likely to read
        arguments."""
        files = [name for name in self._names if not _NOT_THE_SERVER.search(name)]
        yield from sorted(files, key=lambda name: (name.count("/"), name))

    def native_files(self) -> Iterator[str]:
        """Yield the C++ and CUDA sources that a server may compile at startup."""
        yield from (name for name in self._native if not _NOT_THE_SERVER.search(name))

    def version(self, otherwise: str | None = None) -> str:
        """Return the release that the package's version file or metadata states; else
        `otherwise`."""
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
