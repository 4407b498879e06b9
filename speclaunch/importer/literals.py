"""Secrets that a command holds: a recipe takes them from the environment instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from speclaunch.engine.canonical import canonical
from speclaunch.engine.command import is_secret_argument
from speclaunch.errors import COMMAND_LINE, Problem
from speclaunch.importer.interface import Word
from speclaunch.importer.recipe_text import Interpolation, RecipeLine
from speclaunch.record import record
from speclaunch.redaction import holds_secret, is_literal_secret, is_secret_variable


@record(frozen=False)
class Literals:
    """What was taken out of a recipe: for each argument and variable, what it comes out of now."""

    args: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    told: list[Problem] = field(default_factory=list)

    def argument(self, name: str, line: RecipeLine, words: Sequence[Word]) -> RecipeLine:
        """The line of an argument, without a secret; `words` are its flag and its values."""
        if not (is_secret_argument(canonical(name)) or holds_secret(line.value)):
            return line
        variable = _variable(name.upper(), line, words[1:] or words)
        if variable is None:
            return line
        self.args[canonical(name)] = variable
        return self._taken(name, variable, line, words[-1])

    def variables(
        self, env: Mapping[str, RecipeLine], words: Mapping[str, Word]
    ) -> dict[str, RecipeLine]:
        """The environment, without secrets."""
        found = dict(env)
        for name, line in env.items():
            if not (is_secret_variable(name) or holds_secret(line.value)):
                continue
            variable = _variable(name, line, [words[name]])
            if variable is not None:
                self.env[name] = variable
                found[name] = self._taken(name, variable, line, words[name])
        return found

    def _taken(self, name: str, variable: str, line: RecipeLine, word: Word) -> RecipeLine:
        place = word.place
        if place.path == COMMAND_LINE:  # its text may be the value
            place = replace(place, text=name)
        self.told.append(
            Problem(
                f"the value of {name} is written in the file; the recipe reads it from ${variable}",
                replace(place, hidden=True),
                f"export {variable} where the recipe is launched, and rotate the secret: it has "
                "been exposed",
            )
        )
        return RecipeLine(Interpolation(f"${{oc.env:{variable}}}"), line.comment)


def _variable(name: str, line: RecipeLine, words: Sequence[Word]) -> str | None:
    """The variable that shall hold a secret that is written down; None where there is none."""
    for word in words:
        for default in word.defaults:
            if is_literal_secret(word.text[default.start : default.end]):
                return default.name
    if isinstance(line.value, str) and not isinstance(line.value, Interpolation):
        return name if is_literal_secret(line.value) or holds_secret(line.value) else None
    return None
