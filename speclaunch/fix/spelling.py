"""A misspelt name set right in its place: a flag of commands in any file, or a key of a recipe.

What is proven: read back, every command is as before but for the name, the version's parser has
nothing new against it, and the argument was not given before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import Catalogue, name_of
from speclaunch.errors import Place
from speclaunch.fix.edits import Edit, apply, lines_of
from speclaunch.fix.fixed_text import composed, data_of
from speclaunch.fix.yaml_edits import NotFixableError
from speclaunch.importer.effective_words import followed
from speclaunch.importer.files import read_text
from speclaunch.importer.interface import Invocation
from speclaunch.plan.request import from_invocation
from speclaunch.record import record


@record
class Spelling:
    """The name as it is written, without the dashes before it, and the one that is meant."""

    wrong: str
    right: str
    place: Place


def spelled_commands(
    text: str, shown: str, file: Path | None, spelling: Spelling, catalogue: Catalogue
) -> str:
    """The text with the name set right, proven. Raises NotFixableError, and InputError."""
    made = _replaced(text, shown, spelling)
    before = followed(read_text(text, shown), file).invocations
    after = followed(read_text(made, shown), file).invocations
    if len(before) != len(after):
        raise NotFixableError(f"{len(before)} commands become {len(after)}")
    pairs = zip(before, after, strict=True)
    changed = [_check(one, other, spelling, catalogue) for one, other in pairs]
    if not any(changed):
        raise NotFixableError("it is not written as a word of the command")
    return made


def _check(old: Invocation, new: Invocation, spelling: Spelling, catalogue: Catalogue) -> bool:
    """Whether the command has the name; raises NotFixableError where more than that changes."""
    wanted = [
        word.text.replace(spelling.wrong, spelling.right, 1)
        if word.place.position == spelling.place.position
        else word.text
        for word in old.words
    ]
    if wanted != [word.text for word in new.words] or _rest(old) != _rest(new):
        raise NotFixableError(f"the command of line {old.place.line} would change otherwise, too")
    if wanted == [word.text for word in old.words]:
        return False
    one, other = (from_invocation(found, "fixed", catalogue) for found in (old, new))
    if canonical(name_of(spelling.right)) in one.given:
        raise NotFixableError(f"{spelling.right} is given, too")
    said = Counter(problem.message for problem in other.problems)
    more = said - Counter(problem.message for problem in one.problems)
    if more:
        raise NotFixableError(f"SGLang {catalogue.version} would refuse it: {next(iter(more))}")
    return True


def _rest(invocation: Invocation) -> Sequence[Any]:
    """Everything of a command but its words."""
    return (
        invocation.kind,
        invocation.name,
        invocation.image,
        [word.text for word in invocation.program],
        {name: word.text for name, word in invocation.env.items()},
        {name: word.text for name, word in invocation.extras.items()},
        Counter(one.text for one in invocation.dropped),
    )


def spelled_recipe(
    text: str, shown: str, path: Path, spelling: Spelling, config_dirs: Sequence[Path] = ()
) -> str:
    """The text of a recipe with the key set right, proven. Raises NotFixableError, InputError."""
    made = _replaced(text, shown, spelling)
    old, new = (data_of(one) for one in (text, made))
    args = old.get("args") if isinstance(old, dict) else None
    if not isinstance(args, dict) or spelling.wrong not in args:
        raise NotFixableError("it is not written as a key of `args`")
    given = composed(text, shown, path, config_dirs).values.get("args") or {}
    if canonical(name_of(spelling.right)) in {canonical(name_of(str(name))) for name in given}:
        raise NotFixableError(f"{spelling.right} is given, too")
    wanted = [(spelling.right if name == spelling.wrong else name, args[name]) for name in args]
    if new != {**old, "args": dict(wanted)} or list(new["args"].items()) != wanted:
        raise NotFixableError("something else would change, too")
    return made


def _replaced(text: str, shown: str, spelling: Spelling) -> str:
    place = spelling.place
    if place.path != shown:
        raise NotFixableError(f"it is written in {place.path}")
    lines = lines_of(text)
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    at = line.find(spelling.wrong, place.column - 1, place.column + place.length + 1)
    if at < 0:
        raise NotFixableError("it is not written where it was found")
    return apply(text, [Edit(place.line, at + 1, len(spelling.wrong), spelling.right)])
