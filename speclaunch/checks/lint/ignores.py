"""`# speclaunch: ignore[SPL203] reason`: comments that suppress findings in their file.

At the end of a line it applies to that line. On a separate line it applies to the next line that is
not a comment, and to the complete command if a command begins there. `ignore-file[…]` applies to
the file. In the prose of a document the form is `<!-- speclaunch: ignore[SPL203] reason -->`. Text
in strings, prose and here-documents that no shell reads is never a comment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from speclaunch.checks.lint.file_codes import INVALID, REFUSES, UNUSED, FileCode, known_codes
from speclaunch.checks.rules.finding import Finding
from speclaunch.core import COMMAND_LINE, Place, Problem, lazy, reads

_COMMENT = lazy(
    r"(?P<mark>#|<!--)\s*speclaunch:\s*ignore(?P<file>-file)?(?:\[(?P<codes>[^\]]*)\])?[ \t]*"
    r"(?P<reason>.*)"
)
_NOTHING = lazy(r"\s*(?:#|<!--|`{3}|~{3}|\.\. code|\Z)")
"""Lines between a comment and its target: comments, and the fence of a document's code."""
_CODE = lazy(r"SPL\d{0,3}\Z|SPA(-\d{4}(-\d{4})?)?\Z")


class Extent(NamedTuple):
    """First and last line of a deployment in a file."""

    first: int
    last: int


class Ignore(Struct):
    """Ignore comment: its codes or code prefixes, and the lines that it applies to."""

    place: Place
    codes: tuple[str, ...]
    reason: str
    lines: range | None
    """None: the complete file."""
    used: set[str] = set()

    def covers(self, finding: Finding) -> bool:
        """True if the comment suppresses a finding; records the use."""
        if self.lines is not None and finding.place.line not in self.lines:
            return False
        matching = [code for code in self.codes if finding.code.startswith(code)]
        self.used.update(matching)
        return bool(matching)


def read_ignores(text: str, path: str, commands: Sequence[Extent] = ()) -> list[Ignore]:
    """Return the ignore comments of a file in order. `commands`: the lines of each command in
    it."""
    if "speclaunch:" not in text:
        return []
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    found: list[Ignore] = []
    for number, matched in _real_comments(lines, path):
        line = lines[number - 1]
        codes = tuple(c.strip().upper() for c in (matched["codes"] or "").split(",") if c.strip())
        reason = matched["reason"]
        if matched["mark"] != "#":
            reason = reason.partition("--")[0]
        length = len(matched[0].rstrip())
        place = Place(path, number, matched.start() + 1, length)
        own_line = not line[: matched.start()].strip()
        covered = None if matched["file"] else _covered(lines, number, own_line, commands)
        found.append(Ignore(place, codes, reason.strip(), covered))
    return found


def _real_comments(lines: Sequence[str], path: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the ignore comments in order, each with its line number."""
    from speclaunch.deployments import comments_of  # noqa: PLC0415  few files have any

    is_comment = comments_of("\n".join(lines), path)
    start = 0
    for number, line in enumerate(lines, 1):
        matched = _COMMENT.search(line) if "speclaunch:" in line else None
        while matched is not None:
            at = start + matched.start()
            if is_comment(at) if is_comment is not None else matched["mark"] == "#":
                yield number, matched
                break
            matched = _COMMENT.search(line, matched.start() + 1)
        start += len(line) + 1


def _covered(
    lines: Sequence[str], number: int, own_line: bool, commands: Sequence[Extent]
) -> range:
    if not own_line:
        return range(number, number + 1)
    following = number + 1
    while following <= len(lines) and _NOTHING.match(lines[following - 1]):
        following += 1
    for first, last in commands:
        if first <= following <= last:
            return range(following, last + 1) if first == following else range(following, first + 1)
    return range(following, following + 1)


def unsuppressed(findings: Iterable[Finding], ignores: Sequence[Ignore]) -> list[Finding]:
    """Return the findings that no ignore comment of their file suppresses."""
    by_path: dict[str, list[Ignore]] = {}
    for ignore in ignores:
        by_path.setdefault(ignore.place.path, []).append(ignore)

    def is_silenced(finding: Finding) -> bool:
        here = by_path.get(finding.place.path, ())
        covering = [ignore for ignore in here if ignore.covers(finding)]  # each records its use
        return bool(covering)

    return [finding for finding in findings if not is_silenced(finding)]


def complaints(
    ignores: Iterable[Ignore], path: str, engine: str, selected: Collection[str] | None = None
) -> Iterator[Finding]:
    """Yield findings about ignore comments of the file `path`.

    `selected` are the codes that were checked; None: all. A comment is reported as unused only if
    all codes that it suppresses were checked.
    """
    for ignore in ignores:
        for notice, message, why in _complaints(ignore, selected):
            if selected is None or notice.code in selected:
                yield notice.finding(Problem(message, ignore.place), path, engine, why)


def _complaints(
    ignore: Ignore, selected: Collection[str] | None
) -> Iterator[tuple[FileCode, str, str]]:
    if not ignore.codes:
        yield INVALID, "an ignore comment without a code", "it suppresses nothing"
    elif not ignore.reason:
        why = "readers cannot know its purpose"
        yield INVALID, "an ignore comment without a reason", why
    for code in ignore.codes:
        meant = [known for known in known_codes() if known.startswith(code)]
        if not _CODE.match(code) or not meant:
            yield INVALID, f"unknown rule code {code}", "it suppresses nothing"
        elif code == REFUSES.code or code in ignore.used:  # engine checks differ between machines
            continue
        elif selected is None or all(known in selected for known in meant):
            why = "it would silently suppress the next finding with that code"
            yield UNUSED, f"no finding with the code {code} here", why


def read_elsewhere(findings: Iterable[Finding], path: str) -> list[Ignore]:
    """Return the ignore comments of files other than `path` that have findings: groups of a recipe,
    or files that a script includes."""
    found: list[Ignore] = []
    for other in dict.fromkeys(finding.place.path for finding in findings):
        if other in (path, COMMAND_LINE):
            continue
        found += read_ignores(_with_comments(other), other)
    return found


@reads.cached(1024)
def _with_comments(path: str) -> str:
    """Return the text of a file that may contain ignore comments; empty if it cannot."""
    try:
        text = reads.read_text(path)
    except (OSError, ValueError):  # its findings are reported
        return ""
    return text if "speclaunch:" in text else ""
