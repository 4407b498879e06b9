"""A translation proves itself: its own output is read back, and must mean what was announced.

What is compared comes from the readers and the parser of the target version, never from the edits.
A translation that does not pass is a bug of ours: nothing is written, and both texts are kept for
whoever mends it.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from pathlib import Path

import yaml

from speclaunch.engine.argv import parse_argv
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.command import is_secret_argument
from speclaunch.errors import ExitCode, Problem, SpeclaunchError
from speclaunch.fix.edits import lines_of
from speclaunch.fix.meaning import Meaning, differences, meaning_of
from speclaunch.home import make_private, speclaunch_home
from speclaunch.importer.interface import Invocation, Reading, Word
from speclaunch.recipe.bounded_yaml import events
from speclaunch.record import record
from speclaunch.redaction import Redactor, holds_secret, is_secret_flag, is_secret_variable, masked

_EMPTY = re.compile(
    r"(?<![-\w$])([A-Za-z_]\w*)=(?:\"\"|''|\(\s*\))?(?=[ \t]*(?:[;#\n\r]|\Z))", re.M
)
"""A definition without a value: `NAME=`, `NAME=""`, `NAME=()`; `NAME+=()` only adds nothing."""
_YAML = (".yaml", ".yml", ".json")


class UnprovenError(SpeclaunchError):
    """A translation that does not mean what it says (exit 4): a bug, nothing was written."""

    exit_code = ExitCode.INTERNAL


@record
class Expected:
    """What one command of the new text must be: its words, and what its environment gains."""

    words: tuple[str, ...]
    version: str
    meaning: Meaning | None
    env: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    """Its new image; None: the old one."""


def unproven_commands(
    before: Reading, after: Reading, expected: Sequence[Expected]
) -> Iterator[str]:
    """In what the commands of the new text are not those that are expected."""
    old, new = before.invocations, after.invocations
    if len(old) != len(new) or len(old) != len(expected):
        yield f"{len(old)} commands became {len(new)}"
        return
    for number, (one, other, wanted) in enumerate(zip(old, new, expected, strict=True), 1):
        for what in _unlike(one, other, wanted):
            yield f"command {number}: {what}"
    if len(after.problems) > len(before.problems):
        yield f"it can no longer be read: {after.problems[-1].message}"


def _unlike(old: Invocation, new: Invocation, wanted: Expected) -> Iterator[str]:
    words = tuple(word.text for word in new.words)
    if words != wanted.words:
        yield f"its words are {words}, not {wanted.words}"
    image = wanted.image or old.image
    if (old.kind, old.name, image) != (new.kind, new.name, new.image):
        yield "it is another program, container or image"
    if _texts(old.extras) != _texts(new.extras):
        yield "options of others changed"
    env = dict(_texts(new.env))
    for name, value in wanted.env.items():
        if env.get(name) == value:
            del env[name]
        else:
            yield f"{name} is not {value}"
    if {n: v for n, v in _texts(old.env).items() if n not in wanted.env} != env:
        yield "its environment changed"
    around = (image if one.text == old.image else one.text for one in old.dropped)
    if Counter(around) != Counter(one.text for one in new.dropped):
        yield "what surrounds it changed"
    opaque = {index for index, word in enumerate(new.words) if not word.evaluated}
    meaning = meaning_of(words, load_catalogue(wanted.version), opaque)
    if wanted.meaning is None or meaning is None:
        if wanted.meaning is not meaning:
            yield f"SGLang {wanted.version} refuses it"
    elif found := differences(wanted.meaning, meaning):
        yield f"{found[0].name} is {found[0].after!r}, not {found[0].before!r}"


def _texts(words: Mapping[str, Word]) -> dict[str, str]:
    return {name: word.text for name, word in words.items()}


def unproven_text(
    before: str,
    after: str,
    shown: str,
    touched: Collection[int],
    inserted: Collection[str],
    *,
    more: int = 0,
) -> Iterator[str]:
    """In what the rest of a file is not as it was. `touched` are lines that may differ, `inserted`
    new ones; in YAML, there may be `more` values."""
    untouched = [
        line.rstrip("\r\n")
        for number, line in enumerate(lines_of(before), 1)
        if number not in touched
    ]
    lines = iter([line.rstrip("\r\n") for line in lines_of(after)])
    for line in untouched:
        if all(line != other for other in lines):  # consumes `lines` up to the match
            yield f"an unrelated line is gone: {line.strip()[:60]}"
            return
    if len(lines_of(after)) > len(lines_of(before)) + len(inserted):
        yield "it has more new lines than announced"
    emptied = Counter(_EMPTY.findall(after)) - Counter(_EMPTY.findall(before))
    if emptied:
        yield f"the definition of {', '.join(sorted(emptied))} is empty"
    if Path(shown).suffix.lower() in _YAML:
        yield from unproven_yaml(before, after, touched, more)


def unproven_yaml(
    before: str, after: str, touched: Collection[int], more: int = 0
) -> Iterator[str]:
    """In what YAML is not as it was: every scalar on other lines at its depth, `more` added.

    A quoted or plain scalar may go over several lines; a change in any of them is one of it.
    """
    try:
        old = list(_scalars(before))
    except yaml.YAMLError:
        return  # it was none before
    try:
        new = list(_scalars(after))
    except yaml.YAMLError as error:
        yield f"it is no longer valid YAML: {error}"
        return
    kept = [scalar for lines, scalar in old if not any(line in touched for line in lines)]
    rest = iter([scalar for _, scalar in new])
    if any(all(scalar != other for other in rest) for scalar in kept):
        yield "its structure changed"
    if len(new) > len(old) + more:
        yield "it has more values than before"


def _scalars(text: str) -> Iterator[tuple[range, tuple[int, str, str]]]:
    """Each scalar with its lines; of a block, whose lines are compared as such, the first."""
    depth = 0
    for event in events(text):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and event.start_mark is not None:
            first = event.start_mark.line + 1
            block = event.style in ("|", ">")  # a script inside
            last = first if block or event.end_mark is None else event.end_mark.line + 1
            yield range(first, last + 1), (depth, event.tag or "", "" if block else event.value)


def empties(before: str, after: str) -> bool:
    """Whether a change leaves a definition without a value."""
    return bool(Counter(_EMPTY.findall(after)) - Counter(_EMPTY.findall(before)))


def refuse(verb: str, what: Iterable[str], before: str, after: str, hidden: Iterable[str]) -> None:
    """Raise UnprovenError when there is anything in `what`, both texts kept without secrets."""
    found = list(what)
    if not found:
        return
    where = keep(verb, found, before, after, hidden)
    raise UnprovenError(
        Problem(
            f"this is a bug in speclaunch: {verb} produced a text with another meaning: "
            + Redactor(hidden).text("; ".join(found[:3])),
            help="nothing was written" + (f"; both texts are in {where}" if where else ""),
        )
    )


def keep(
    verb: str, what: Sequence[str], before: str, after: str, hidden: Iterable[str]
) -> Path | None:
    """Both texts in a file that only this user can read; None where it cannot be written."""
    path = speclaunch_home() / f"crash-{verb}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    listed = "\n".join(f"- {one}" for one in what)
    text = f"{verb}\n{listed}\n\n--- before\n{before}\n--- after\n{after}\n"
    text = "\n".join(masked(line) for line in Redactor(hidden).text(text).split("\n"))
    try:
        make_private(path.parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return path


def secrets_of(invocations: Iterable[Invocation], version: str) -> list[str]:
    """The values of keys and passwords in commands, wherever and however they are written."""
    found: list[str] = []
    for invocation in invocations:
        found += [
            word.text
            for name, word in invocation.env.items()
            if (is_secret_variable(name) or holds_secret(word.text)) and word.evaluated
        ]
        words = [word.text for word in invocation.words]
        for item in parse_argv(words, load_catalogue(version), whole=False).parsed:
            if is_secret_argument(canonical(item.dest)) and isinstance(item.stored, str):
                found.append(item.stored)
        follows = pairwise(words)
        found += [v for flag, v in follows if flag.startswith("--") and is_secret_flag(flag)]
        found += filter(holds_secret, words)
    return [value for value in found if value]
