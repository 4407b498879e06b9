"""The files that a command names with the engine's own `--config`: they belong to its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from speclaunch.engine.canonical import canonical
from speclaunch.errors import InputError, Place, Problem
from speclaunch.fix.config_file import migrate_config
from speclaunch.fix.migrate import Step
from speclaunch.fix.planned import Planned
from speclaunch.importer.interface import MAX_BYTES, Invocation


def config_files(invocation: Invocation, planned: Planned) -> Iterator[tuple[str, Place]]:
    """The names of the files and where they are written; what is in a variable is left out."""
    for said in planned.said:
        if canonical(said.item.dest) != "config":
            continue
        for index in said.item.value_indices[:1]:  # `--config=FILE` is ignored by the engine
            word = invocation.words[index]
            if word.evaluated:
                yield word.text, word.place


def judge_config(name: str, place: Place, base: Path, to: str) -> tuple[list[Problem], str | None]:
    """Whether a file that a command names can stay as it is, and a note where nobody can tell.

    `base` is where a relative name begins: the directory of the script.
    """
    path = base / name
    try:
        text = _text(path)
        found = migrate_config(text, str(path), to)
    except _UnseenError as error:
        return [], f"{name} was not looked into: {error}"
    except InputError as error:
        return list(error.problems), None
    if not found.problems and found.text != text:
        first = next((step.text for step in found.steps), "it is for another version")
        found.problems.append(
            Problem(
                f"{name} has to be carried over, too: {first}",
                place,
                f"first run `speclaunch migrate {path} --to {to}`",
            )
        )
    return found.problems, None


class _UnseenError(Exception):
    """A file that cannot be looked into, and why."""


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise _UnseenError("there is no such file beside the script")
        if path.stat().st_size > MAX_BYTES:
            raise _UnseenError(f"it is larger than {MAX_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _UnseenError(str(error)) from error


def following(base: Path, to: str) -> Callable[..., tuple[list[Problem], list[Step]]]:
    """What `migrate_commands` asks of each command's files; relative names begin at `base`."""

    def follow(invocation: Invocation, planned: Planned) -> tuple[list[Problem], list[Step]]:
        problems: list[Problem] = []
        steps: list[Step] = []
        for name, place in config_files(invocation, planned):
            found, note = judge_config(name, place, base, to)
            problems += found
            steps += [Step(place, note)] if note else []
        return problems, steps

    return follow
