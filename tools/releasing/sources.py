"""What is looked up in the sources of one release: messages, statements, enumerations."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from speclaunch.engine.releases.extraction.source import PackageSource

SRT = "sglang/srt/"
_ASKED = re.compile(
    rf"{SRT}(server_args\.py|arg_groups/|speculative/|configs/model_config\.py|model_executor/"
    r"|mem_cache/|layers/attention/|managers/scheduler|managers/tp_worker|entrypoints/)"
)
"""Where the engine refuses or changes what it was asked for."""
_SHORTEST = 20
"""Letters of a message that says something."""


class Sources:
    """One release, read from its wheel or its unpacked folder."""

    def __init__(self, source: PackageSource) -> None:
        self.source = source
        self.files = tuple(source.server_files())

    def find(self, cited: str) -> str | None:
        """The file that a citation names by its end: `arg_groups/overrides.py`."""
        direct = SRT + cited.removeprefix("srt/")
        if direct in self.files:
            return direct
        ends = [f for f in self.files if f.endswith(f"/{cited}")]
        return ends[0] if len(ends) == 1 else None

    def statement(self, file: str, line: int) -> str | None:
        """The statement at a line, without its layout; of a compound one its head."""
        tree = self.source.tree(file)
        best: ast.stmt | None = None
        for node in ast.walk(tree) if tree else ():
            inside = isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
            if inside and (best is None or node.lineno >= best.lineno):
                best = node  # type: ignore[assignment]
        if best is None:
            return None
        lines = (self.source.read(file) or "").splitlines()
        body = getattr(best, "body", None)
        last = best.end_lineno or best.lineno
        if isinstance(body, list) and body:
            last = max(best.lineno, min(last, body[0].lineno - 1))
        return squeezed("\n".join(lines[best.lineno - 1 : last]))

    def says(self, file: str, statement: str) -> bool:
        """Whether a file has a statement."""
        return statement in self._squeezed(file)

    def anywhere(self, statement: str) -> str | None:
        """A file that has a statement."""
        return next((file for file in self.files if self.says(file, statement)), None)

    def _squeezed(self, file: str) -> str:
        if file not in self._texts:
            self._texts[file] = squeezed(self.source.read(file) or "")
        return self._texts[file]

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {}

    @cached_property
    def messages(self) -> dict[str, str]:
        """What the engine says where it refuses or changes something, and where (file:line).

        `{}` stands for what is filled in.
        """
        return self._texts_of(_said)

    @cached_property
    def course(self) -> dict[str, str]:
        """What it logs of its own course, and where, as `messages`."""
        return self._texts_of(_told)

    def _texts_of(self, told: Callable[[ast.AST], Iterator[str]]) -> dict[str, str]:
        found: dict[str, str] = {}
        for file in self.files:
            if _ASKED.match(file):
                for node in ast.walk(self.source.tree(file) or ast.Module([], [])):
                    for text in told(node):
                        found.setdefault(text, f"{file.removeprefix(SRT)}:{node.lineno}")  # type: ignore[attr-defined]
        return found

    def members(self, cited: str, name: str) -> list[str]:
        """The names in an enumeration."""
        file = self.find(cited)
        for node in ast.walk((file and self.source.tree(file)) or ast.Module([], [])):
            if isinstance(node, ast.ClassDef) and node.name == name:
                assigned = (s for s in node.body if isinstance(s, ast.Assign))
                return [t.id for s in assigned for t in s.targets if isinstance(t, ast.Name)]
        return []

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """What the wheel pins exactly (`Requires-Dist: transformers==…`)."""
        for text in self.source.metadata():
            pins = re.findall(r"^Requires-Dist: *([\w.-]+==[^\s;]+)\s*$", text, re.MULTILINE)
            return tuple(sorted(pins))
        return ()


def squeezed(text: str) -> str:
    """Without layout: the same statement on one line or on several."""
    return re.sub(r"\s+", "", text).replace(",)", ")").replace(",]", "]")


def _said(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Raise(exc=ast.Call(args=[first, *_])):
            yield from _text(first)
        case ast.Assert(msg=ast.expr() as said):
            yield from _text(said)
        case ast.Call(
            func=ast.Attribute(attr="warning" | "error" | "warning_once"), args=[said, *_]
        ):
            yield from _text(said)
        case ast.Call(
            func=ast.Name(id="print_warning_once" | "log_info_on_rank0"), args=[*_, said]
        ):
            yield from _text(said)


def _told(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(attr="info"), args=[said, *_]):
            yield from _text(said)


def _text(node: ast.expr) -> Iterator[str]:
    parts: list[str] = []
    match node:
        case ast.Constant(value=str() as text):
            parts = [text]
        case ast.JoinedStr(values=values):
            parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in values]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [*_text(left), *_text(right)]
    text = " ".join("".join(map(str, parts)).split())
    if len(text) >= _SHORTEST:
        yield text


def wheel_or_folder(wheels: Path, version: str) -> Path | None:
    """A release among downloaded or unpacked wheels."""
    for folder in (wheels / version, wheels / "src" / version):
        if (folder / "sglang").is_dir():
            return folder
    return next(iter(sorted(wheels.glob(f"sglang-{version}-*.whl"))), None)
