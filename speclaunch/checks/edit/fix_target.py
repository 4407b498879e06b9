"""What a fix requests of a deployment, and the places in its text that can be edited for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.checks.edit.edits import Edit, Ways, combinations
from speclaunch.checks.rules.finding import Fix
from speclaunch.engine import Catalogue, canonical, parse_argv, spell


class NotFixableError(Exception):
    """Why a fix is left to a person. The text is a clause for a report."""


class TargetArgument(Struct, frozen=True):
    """An argument as it has to be: `words` on a command line, empty where it has to go.

    `name` is the newest engine's, `own` that of the version, `stored` what its parser stores.
    """

    name: str
    own: str
    value: Any
    words: tuple[str, ...]
    stored: Any = None

    @property
    def values(self) -> tuple[str, ...]:
        """The values among the words."""
        if len(self.words) == 1 and "=" in self.words[0]:
            return (self.words[0].partition("=")[2],)
        return self.words[1:]

    @property
    def is_removed(self) -> bool:
        """Whether the command must not name it."""
        return not self.words


class FixTarget(Struct, frozen=True):
    """The arguments and variables of a deployment that a fix names, as they have to be."""

    arguments: Mapping[str, TargetArgument]
    env: Mapping[str, str | None]


def target_of(fix: Fix, catalogue: Catalogue) -> FixTarget:
    """Return what a fix requests of a deployment of one version. Raises NotFixableError."""
    found = {canonical(name): _argument(name, value, catalogue) for name, value in fix.set.items()}
    return FixTarget(found, dict(fix.env))


def _argument(name: str, value: Any, catalogue: Catalogue) -> TargetArgument:
    key = canonical(name)
    if value is None:
        return TargetArgument(key, name, None, ())
    spelled = spell({name: value}, {}, catalogue)
    if spelled.problems:
        raise NotFixableError(spelled.problems[0].message)
    if not spelled.arguments:  # a switch that is off
        return TargetArgument(key, name, value, ())
    words = spelled.arguments[0].tokens
    parsed = parse_argv(words, catalogue, whole=False)
    refused = [problem for problem in parsed.problems if problem.index is not None]
    if refused or len(parsed.parsed) != 1:
        said = refused[0].message if refused else f"`{' '.join(words)}` is not understood"
        raise NotFixableError(f"SGLang {catalogue.version} refuses it: {said}")
    (item,) = parsed.parsed
    return TargetArgument(key, item.name, value, words, item.stored)


class EditablePlaces(ABC):
    """One deployment as it is written: words of a command, keys of YAML, keywords of Python.

    What raises NotFixableError leaves the fix to a person.
    """

    most_ways: int
    """Combinations that are tried."""

    @abstractmethod
    def change(self, argument: TargetArgument) -> Ways | None:
        """Return the ways to change or remove an argument; None if it has to be added."""

    @abstractmethod
    def finish(self, new: Sequence[TargetArgument]) -> Iterator[Ways]:
        """Yield the steps that add arguments, and those that `change` left for all at once."""

    @abstractmethod
    def set_variable(self, name: str, value: str | None) -> Ways:
        """Return the ways to give a variable another value, or none."""

    def ways(self, target: FixTarget) -> Iterator[list[Edit]]:
        """Yield the edits that make the deployment what is requested, the best first."""
        steps: list[Ways] = []
        new: list[TargetArgument] = []
        for argument in target.arguments.values():
            found = self.change(argument)
            if found is None:
                new.append(argument)
            else:
                steps.append(found)
        steps += self.finish(new)
        steps += [self.set_variable(name, value) for name, value in target.env.items()]
        yield from combinations(steps, self.most_ways)
