"""A fix as edits of a server command, wherever it is written: a script, a manifest, a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from speclaunch.engine.argv import ParsedArgument, parse_argv
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import ArgumentKind, Catalogue
from speclaunch.fix.command_env import env_ways
from speclaunch.fix.command_words import Text, added, replaced, without
from speclaunch.fix.edits import Edit, Ways, combinations
from speclaunch.fix.wanted import Wanted, WantedArgument
from speclaunch.fix.yaml_edits import NotFixableError
from speclaunch.importer.effective_words import effective
from speclaunch.importer.interface import Invocation, InvocationKind, Word
from speclaunch.importer.slime import prefixed
from speclaunch.record import record

_MOST_WAYS = 60
_SLIMES = {
    "model_path": "--hf-checkpoint",
    "tp_size": "--rollout-num-gpus-per-engine",
}
"""What slime says with an option of its own."""


@record(frozen=False)
class _Command:
    """A command with what its version's parser makes of its words."""

    invocation: Invocation
    words: tuple[Word, ...]
    items: tuple[ParsedArgument, ...]
    text: Text

    @property
    def is_slime(self) -> bool:
        return self.invocation.kind is InvocationKind.SLIME

    def of(self, name: str) -> list[ParsedArgument]:
        """Every time that an argument is given, in order."""
        return [item for item in self.items if canonical(item.dest) == name]

    def words_of(self, item: ParsedArgument) -> list[Word]:
        return [self.words[index] for index in (item.index, *item.value_indices)]

    def is_here(self, word: Word) -> bool:
        """Whether a word is written in this file, as a word of the command."""
        return word.place.path == self.invocation.place.path and any(
            word is one for one in self.invocation.words
        )


def command_ways(
    invocation: Invocation, wanted: Wanted, catalogue: Catalogue, text: str
) -> Iterator[list[Edit]]:
    """The ways to make a command what is wanted, the best first. Raises NotFixableError."""
    found = effective(invocation, catalogue)
    texts = [word.text for word in found.words]
    opaque = {index for index, word in enumerate(found.words) if not word.evaluated}
    parsed = parse_argv(texts, catalogue, opaque=opaque, whole=False)
    command = _Command(invocation, found.words, parsed.parsed, Text(text))
    steps: list[Ways] = []
    gone: list[list[Word]] = []
    groups: list[list[str]] = []
    for name, argument in wanted.arguments.items():
        items = command.of(name)
        if command.is_slime and name in _SLIMES:
            raise NotFixableError(f"slime sets it with {_SLIMES[name]}")
        if argument.is_removed:
            gone += [_removable(command, item) for item in items]
            continue
        ways = _another_value(command, items, argument, catalogue)
        if ways is None:
            gone += [_removable(command, item) for item in items]
        if not ways:
            groups.append(_spelled(command, argument))
        elif ways[0]:
            steps.append(ways)
    steps += _gone_and_added(command, gone, groups)
    steps += [env_ways(invocation, name, value, text) for name, value in wanted.env.items()]
    if any(not step for step in steps):
        raise NotFixableError("no edit of its text does it")
    yield from combinations(steps, _MOST_WAYS)


def _gone_and_added(
    command: _Command, gone: Sequence[Sequence[Word]], groups: Sequence[Sequence[str]]
) -> Iterator[Ways]:
    leaving = [word for some in gone for word in some]
    if leaving:
        yield list(without(command.invocation.words, leaving, leaving, command.text.text))
    if groups:
        left = {id(word) for word in leaving}
        stays = [w for w in command.words if id(w) not in left and command.is_here(w)]
        program = [
            word
            for word in command.invocation.program
            if word.place.path == command.invocation.place.path
        ]
        yield [[edit] for edit in added(command.text, stays, program, groups)]


def _removable(command: _Command, item: ParsedArgument) -> list[Word]:
    words = _own_words(command, item)
    if not all(map(command.is_here, words)):
        raise NotFixableError(f"{item.written} is not written as a flag")
    return words


def _own_words(command: _Command, item: ParsedArgument) -> list[Word]:
    """The words of an argument that stand in the command's file. Raises NotFixableError where
    another file, such as that of `--config`, has any."""
    words = command.words_of(item)
    for word in words:
        if word.place.path != command.invocation.place.path:
            raise NotFixableError(f"{item.written} is set in {word.place.path}")
    return words


def _another_value(
    command: _Command,
    items: Sequence[ParsedArgument],
    argument: WantedArgument,
    catalogue: Catalogue,
) -> Ways | None:
    """The ways to change what is given last; empty where nothing is given here, None where it has
    to be taken away and written again."""
    if not items:
        return []
    last = items[-1]
    words = _own_words(command, last)
    if last.argument.kind is ArgumentKind.LIST and last.argument.nargs is None and len(items) > 1:
        raise NotFixableError(f"{last.written} is given several times")
    flag, given, values = words[0], words[1:], argument.values
    if last.stored == argument.stored and not values:
        return [[]]
    _, equals, tail = flag.text.partition("=")
    if equals and not given and len(values) == 1:
        steps = [list(_one(command, flag, tail, values[0]))] if tail != values[0] else []
    elif not equals and given and len(given) == len(values):
        steps = [
            list(_one(command, word, word.text, new))
            for word, new in zip(given, values, strict=True)
            if word.text != new
        ]
    elif not given and not values and not equals:  # `--no-x` and `--x`
        own = prefixed(argument.words[0]) if command.is_slime else argument.words[0]
        written = prefixed(flag.text) if command.is_slime else flag.text
        steps = [list(_one(command, flag, written, own))]
    else:
        return None
    if any(catalogue.by_name(one) is None for one in (argument.own,)):
        return None
    return [[edit for edits in chosen for edit in edits] for chosen in product(*steps)]


def _one(command: _Command, word: Word, old: str, new: str) -> Iterator[list[Edit]]:
    for edit in replaced(command.text, command.invocation.words, word, old, new):
        yield [edit]


def _spelled(command: _Command, argument: WantedArgument) -> list[str]:
    if not command.is_slime:
        return list(argument.words)
    return [prefixed(argument.words[0]), *argument.words[1:]]
