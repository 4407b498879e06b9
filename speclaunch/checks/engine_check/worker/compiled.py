"""Compiled sources of a judge in one compressed file, a third of their size.

`pack` writes it from the `__pycache__` folders that the first answer left; `use` makes later
imports read it. Sources that the file lacks, or that another Python compiled, are compiled as
usual.
"""

from __future__ import annotations

import _imp
import importlib.util
import marshal
import os
import types
import zlib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

NAME = "compiled.z"
_LEVEL = 7
_HEADER = 16
"""Bytes before the code in a file of `__pycache__` (PEP 552)."""


def pack(site: Path) -> None:
    """Move a package folder's compiled code into one file in that folder."""
    found = {}
    for folder in sorted(site.rglob("__pycache__")):
        for path in sorted(folder.iterdir()):
            data = path.read_bytes()
            source = folder.parent / (path.name.partition(".")[0] + ".py")
            if data[:4] == importlib.util.MAGIC_NUMBER and source.is_file():
                found[str(source.relative_to(site))] = data[_HEADER:]
            path.unlink()
        folder.rmdir()
    (site / NAME).write_bytes(
        importlib.util.MAGIC_NUMBER + zlib.compress(marshal.dumps(found), _LEVEL)
    )


def use(site: str) -> None:
    """Make imports load compiled code from the file in the folder `site`, if there is one."""
    try:
        with open(os.path.join(site, NAME), "rb") as file:
            data = file.read()
        if data[:4] != importlib.util.MAGIC_NUMBER:
            return
        table: dict[str, bytes] = marshal.loads(zlib.decompress(data[4:]))  # noqa: S302
    except (OSError, ValueError, EOFError, TypeError, zlib.error):
        return
    compiled = SourceFileLoader.get_code
    start = site.rstrip("/") + "/"

    def get_code(self: Any, fullname: str) -> types.CodeType | None:
        path: str = self.path
        stored = table.pop(path[len(start) :], None) if path.startswith(start) else None
        if stored is None:
            return compiled(self, fullname)
        code: types.CodeType = marshal.loads(stored)  # noqa: S302  (we wrote it)
        _imp._fix_co_filename(code, path)
        return code

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
