"""`# speclaunch: ignore[SPL203] reason`: comments that silence findings in their file.

At the end of a line it holds for that line; on a line of its own for the next line that is not a
comment, and for the whole command where one begins there. `ignore-file[…]` holds for the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from speclaunch.errors import Place
from speclaunch.lint.file_codes import INVALID, UNUSED, FileCode
from speclaunch.patterns import lazy
from speclaunch.record import record
from speclaunch.rules.finding import Finding

_COMMENT = lazy(
    r"#\s*speclaunch:\s*ignore(?P<file>-file)?(?:\[(?P<codes>[^\]]*)\])?[ \t]*(?P<reason>.*)"
)
_CODE = lazy(r"SPL\d{0,3}\Z")


class Extent(NamedTuple):
    """The lines that a deployment takes in a file, first and last."""

    first: int
    last: int


@record(frozen=False)
class Ignore:
    """One ignore comment: its codes (or their beginnings) and the lines that it holds for."""

    place: Place
    codes: tuple[str, ...]
    reason: str
    lines: range | None
    """None: the whole file."""
    used: set[str] = field(default_factory=set)

    def covers(self, finding: Finding) -> bool:
        """Whether it silences a finding; remembers that it did."""
        if self.lines is not None and finding.place.line not in self.lines:
            return False
        matching = [code for code in self.codes if finding.code.startswith(code)]
        self.used.update(matching)
        return bool(matching)


def read_ignores(text: str, path: str, commands: Sequence[Extent] = ()) -> list[Ignore]:
    """The ignore comments of a file, in order. `commands`: the lines of each command in it."""
    if "speclaunch:" not in text:
        return []
    lines = text.splitlines()
    found: list[Ignore] = []
    for number, line in enumerate(lines, 1):
        matched = _COMMENT.search(line)
        if matched is None:
            continue
        codes = tuple(c.strip().upper() for c in (matched["codes"] or "").split(",") if c.strip())
        place = Place(path, number, matched.start() + 1, len(matched[0].rstrip()))
        own_line = not line[: matched.start()].strip()
        covered = None if matched["file"] else _covered(lines, number, own_line, commands)
        found.append(Ignore(place, codes, matched["reason"].strip(), covered))
    return found


def _covered(
    lines: Sequence[str], number: int, own_line: bool, commands: Sequence[Extent]
) -> range:
    if not own_line:
        return range(number, number + 1)
    following = number + 1
    while following <= len(lines) and _is_comment(lines[following - 1]):
        following += 1
    for first, last in commands:
        if first <= following <= last:
            return range(following, last + 1) if first == following else range(following, first + 1)
    return range(following, following + 1)


def _is_comment(line: str) -> bool:
    stripped = line.strip()
    return not stripped or stripped.startswith("#")


def kept(findings: Iterable[Finding], ignores: Sequence[Ignore]) -> list[Finding]:
    """The findings that no ignore of their file silences."""
    return [finding for finding in findings if not _silenced(finding, ignores)]


def unsilenced(findings: Iterable[Finding], path: Path) -> list[Finding]:
    """The findings that no comment in the file at `path` silences."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:  # it was read a moment ago; without its text there are no ignores
        text = ""
    return kept(findings, read_ignores(text, str(path)))


def _silenced(finding: Finding, ignores: Sequence[Ignore]) -> bool:
    here = [ignore for ignore in ignores if ignore.place.path == finding.place.path]
    covering = [ignore for ignore in here if ignore.covers(finding)]  # each remembers its use
    return bool(covering)


def complaints(
    ignores: Iterable[Ignore], known: Sequence[str], *, all_asked: bool
) -> Iterator[tuple[FileCode, Place, str, str]]:
    """What is wrong with ignore comments: notice, place, message, why.

    `known` are the codes that there are. Unused ones are told only where `all_asked`: with
    `--select` or `--ignore` their rules may not have been asked.
    """
    for ignore in ignores:
        if not ignore.codes:
            yield INVALID, ignore.place, "an ignore comment without a code", "it silences nothing"
        elif not ignore.reason:
            yield (
                INVALID,
                ignore.place,
                "an ignore comment without a reason",
                ("the reader cannot tell why it is there"),
            )
        for code in ignore.codes:
            if not _CODE.match(code) or not any(one.startswith(code) for one in known):
                yield INVALID, ignore.place, f"unknown rule code {code}", "it silences nothing"
            elif code not in ignore.used and all_asked:
                yield (
                    UNUSED,
                    ignore.place,
                    f"no finding with the code {code} here",
                    ("it would silence the next finding of that code unnoticed"),
                )
