"""Where speclaunch cites or quotes the engine, and whether a new release still says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from releasing.sources import Sources
from speclaunch.serving.launch.diagnosis.diagnose import CATALOGUE
from speclaunch.serving.launch.engine_log import LogMark, mark_of

_CITED = re.compile(
    r"(?P<version>\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?),? `?(?P<file>[\w/]+\.py):(?P<line>\d+)"
)
_LEAST = 20
"""Letters of a text that is no coincidence."""


@dataclass(frozen=True, order=True)
class Citation:
    """`sglang 0.5.23 arg_groups/overrides.py:1211`, and where we say so (file:line, …)."""

    version: str
    file: str
    line: int
    ours: str


def citations(root: Path) -> Iterator[Citation]:
    """Every citation in our modules, and in the pages of rules; each once, with all its places."""
    places: dict[tuple[str, str, int], list[str]] = {}
    for path in _ours(root):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            for found in _CITED.finditer(text):
                key = (found["version"], found["file"], int(found["line"]))
                places.setdefault(key, []).append(f"{path.relative_to(root)}:{number}")
    for (version, file, line), ours in places.items():
        yield Citation(version, file, line, ", ".join(ours))


def _ours(root: Path) -> list[Path]:
    return sorted([*root.glob("speclaunch/**/*.py"), *root.glob("docs/rules/*.md")])


@dataclass(frozen=True)
class Review:
    """What came of the citations."""

    changed: list[str]
    """The statement is in the release before, and nowhere in the new one."""
    moved: list[str]
    unread: list[str]
    """Releases that are cited, and whose wheel is not at hand."""
    kept: int = 0


def review(
    found: Iterator[Citation], get: Callable[[str], Sources | None], before: str, new: str
) -> Review:
    """Follow the statements of citations from the release before into the new one."""
    old, now = get(before), get(new)
    assert old is not None and now is not None
    changed, moved, unread, kept = [], [], set(), 0
    for one in sorted(set(found)):
        if Version(one.version) > Version(before):
            continue
        cited = get(one.version)
        if cited is None:
            unread.add(one.version)
            continue
        file = cited.find(one.file)
        statement = file and cited.statement(file, one.line)
        if not file or not statement or not _in(old, file, statement):
            continue  # what ended earlier was looked at then
        shown = f"{one.ours} cites {one.version} {one.file}:{one.line}"
        if now.says(file, statement):
            kept += 1
        elif where := now.anywhere(statement):
            moved.append(f"{shown}; now in {where.removeprefix('sglang/srt/')}")
        else:
            changed.append(f"{shown}: `{statement[:100]}`")
    return Review(changed, moved, sorted(unread, key=Version), kept)


def _in(release: Sources, file: str, statement: str) -> bool:
    return release.says(file, statement) or release.anywhere(statement) is not None


def quoted(root: Path, gone: Mapping[str, str]) -> Iterator[str]:
    """Our texts that quote messages that the new release does not have."""
    fragments = {}
    for message in gone:
        longest = max(message.split("{}"), key=len).strip()
        if len(longest) >= _LEAST:
            fragments[longest] = message
    for path in _ours(root):
        texts = _texts(path)
        for fragment, message in fragments.items():
            where = next((line for line, text in texts if fragment in text), None)
            if where is not None:
                ours = f"{path.relative_to(root)}:{where}"
                yield f"{ours} quotes `{message[:100]}` ({gone[message]} of the release before)"


def _texts(path: Path) -> list[tuple[int, str]]:
    """The texts of a file with their lines: of a module its literals, of a page all of it."""
    text = path.read_text()
    if path.suffix == ".md":
        return [(1, " ".join(text.split()))]
    return [
        (node.lineno, " ".join(node.value.split()))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def unrecognised(gone: Mapping[str, str], left: Mapping[str, str]) -> Iterator[str]:
    """Causes of failures that were recognised by a message, of which the new release has none."""
    for known in CATALOGUE:
        for one in known.signatures:
            if not one.pattern.pattern:
                continue

            def says(message: str, pattern: re.Pattern[str] = one.pattern) -> bool:
                return pattern.match(message.replace("{}", "1")) is not None

            was = next((message for message in gone if says(message)), None)
            if was is not None and not any(map(says, left)):
                yield f"{known.cause.name}: /{one.pattern.pattern[:80]}/ matched `{was[:80]}`"


def unmarked(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """Marks of the engine's course that no line of the new release is."""
    still = {_mark(message) for message in new}
    for message, at in old.items():
        mark = _mark(message)
        if mark is not None and mark not in still:
            yield f"{mark.name}: `{message[:100]}` ({at} of the release before)"


def _mark(message: str) -> LogMark | None:
    found = mark_of(message.replace("{}", "1"))
    return found and found[0]
