"""Target values of a fix, and the editable text of a deployment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.checks.edit.edits import Edit, Ways, combinations
from speclaunch.checks.rules.finding import Fix
from speclaunch.engine import Catalogue, canonical, parse_argv, render_args


class NotFixableError(Exception):
    """Reason why a fix is left to the user. The text is a clause for a report."""


class TargetArgument(Struct, frozen=True):
    """Argument after the fix. `words`: its tokens on a command line, empty if it is removed.

    `name`: its name in the newest engine. `own`: its name in this version. `stored`: the value that
    the version's parser stores.
    """

    name: str
    own: str
    value: Any
    words: tuple[str, ...]
    stored: Any = None

    @property
    def values(self) -> tuple[str, ...]:
        """Values among the tokens."""
        if len(self.words) == 1 and "=" in self.words[0]:
            return (self.words[0].partition("=")[2],)
        return self.words[1:]

    @property
    def is_removed(self) -> bool:
        """True if the command must not contain it."""
        return not self.words


class FixTarget(Struct, frozen=True):
    """Arguments and variables of a deployment that a fix sets, with their target values."""

    arguments: Mapping[str, TargetArgument]
    env: Mapping[str, str | None]


def target_of(fix: Fix, catalogue: Catalogue) -> FixTarget:
    """Return the target of a fix for a deployment of one version. Raises NotFixableError."""
    found = {canonical(name): _argument(name, value, catalogue) for name, value in fix.set.items()}
    return FixTarget(found, dict(fix.env))


def _argument(name: str, value: Any, catalogue: Catalogue) -> TargetArgument:
    key = canonical(name)
    if value is None:
        return TargetArgument(key, name, None, ())
    rendered = render_args({name: value}, {}, catalogue)
    if rendered.problems:
        raise NotFixableError(rendered.problems[0].message)
    if not rendered.arguments:  # a switch that is off
        return TargetArgument(key, name, value, ())
    words = rendered.arguments[0].tokens
    parsed = parse_argv(words, catalogue, with_values=False)
    refused = [problem for problem in parsed.problems if problem.index is not None]
    if refused or len(parsed.parsed) != 1:
        reason = refused[0].message if refused else f"`{' '.join(words)}` cannot be parsed"
        raise NotFixableError(f"SGLang {catalogue.version} refuses it: {reason}")
    (item,) = parsed.parsed
    return TargetArgument(key, item.name, value, words, item.stored)


class EditablePlaces(ABC):
    """Editable text of a deployment: tokens of a command, keys of YAML, keywords of Python.

    Methods raise NotFixableError to leave the fix to the user.
    """

    most_ways: int
    """Maximum number of combinations to try."""

    @abstractmethod
    def change(self, argument: TargetArgument) -> Ways | None:
        """Return the ways to change or remove an argument; None if it has to be added."""

    @abstractmethod
    def finish(self, new: Sequence[TargetArgument]) -> Iterator[Ways]:
        """Yield the steps that add arguments, and those that `change` deferred."""

    @abstractmethod
    def set_variable(self, name: str, value: str | None) -> Ways:
        """Return the ways to set or remove a variable."""

    def ways(self, target: FixTarget) -> Iterator[list[Edit]]:
        """Yield the edits that reach the target, best first."""
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
