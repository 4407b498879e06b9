"""From a command line to server arguments, read as the engine's own parser reads it.

SGLang parses with argparse, so do we: a parser is built from the catalogue of a version, and
argparse itself decides about prefixes, `--flag=value`, repeated flags and negative numbers. The
conversion functions are those of the releases (sglang/srt/utils/common.py and
model_executor/cuda_graph_config.py of 0.5.23).
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NoReturn

from speclaunch.engine.catalogue import Argument, ArgumentKind, Catalogue
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.conversions import CONVERSIONS, lora_path

PROGRAM = "sglang serve"
"""The name in the engine's own usage errors (server_args.py of 0.5.23)."""


@dataclass(frozen=True, slots=True)
class ParsedArgument:
    """One argument of a command line.

    `index` is the position of its flag among the words, `value_indices` those of its values (none
    for a switch or for `--flag=value`); `written` is the flag as it stands there.
    """

    argument: Argument
    value: Any
    written: str
    index: int
    value_indices: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name a recipe calls it by."""
        return self.argument.name


@dataclass(frozen=True, slots=True)
class ArgvProblem:
    """What the engine would refuse; `index` is the word, None when a word is missing."""

    index: int | None
    message: str
    help: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedArguments:
    """A command line, parsed for one engine version."""

    version: str
    parsed: tuple[ParsedArgument, ...]
    problems: tuple[ArgvProblem, ...]
    error: str | None
    """What the engine's parser would say: its first error only. None when it accepts."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Effective value by destination, the defaults of the parser included."""


class _RefusedError(Exception):
    """What the parser has to say; argparse would end the process."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _RefusedError(message or f"exit {status}")


class _RefusingAction(argparse.Action):
    """A flag that is in the parser only to be refused."""

    def __call__(self, *_: object) -> NoReturn:
        raise argparse.ArgumentError(self, f"this version refuses it; use {self.metavar}")


class _IgnoringAction(argparse.Action):
    """A flag that is accepted with a warning and stores nothing."""

    def __call__(self, *_: object) -> None:
        """Store nothing."""


class _ConstantAction(argparse.Action):
    """A flag whose value is checked and then replaced by a constant (DeprecatedStoreConstAction,
    arg_groups/argparse_actions.py of 0.5.23: `--monokernel-backend amd` stores True)."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        *_: object,
    ) -> None:
        setattr(namespace, self.dest, self.const)


def parse_argv(
    words: Sequence[str],
    catalogue: Catalogue,
    *,
    opaque: Collection[int] = (),
    whole: bool = True,
) -> ParsedArguments:
    """Parse the words after `sglang serve` or `python -m sglang.launch_server`.

    Words whose index is in `opaque` could not be evaluated (an unset shell variable): they are
    carried through, and neither their type nor their choice is checked. Without `whole` the
    problems are found, but not the verdict of the whole (`error`, `values`), in half the time.
    """
    parser = _parser(catalogue.version, checked=True, required=False)
    chunks, stray = _chunks(words, parser, set(opaque))
    parsed: list[ParsedArgument] = []
    problems: list[ArgvProblem] = []
    for chunk in chunks:
        outcome = _parse_chunk(chunk, catalogue)
        if isinstance(outcome, ParsedArgument):
            parsed.append(outcome)
        else:
            problems.append(outcome)
    problems += [ArgvProblem(index, f"unrecognized arguments: {words[index]}") for index in stray]
    missing = _missing(catalogue, parsed)
    if missing:
        problems.append(missing)
    problems.sort(key=lambda problem: len(words) if problem.index is None else problem.index)
    values, error = _whole(words, catalogue, set(opaque)) if whole else ({}, None)
    return ParsedArguments(catalogue.version, tuple(parsed), tuple(problems), error, values)


def args_of(parsed: ParsedArguments) -> dict[str, Any]:
    """What a recipe's `args:` must say so that `spell()` gives the same command again.

    Keyed by the argument's name; the last of repeated flags wins, as in the parser.
    """
    found: dict[str, Any] = {}
    for item in parsed.parsed:
        if item.argument.kind is ArgumentKind.HELP:
            continue
        for other in [name for name in found if name != item.name]:
            argument = load_catalogue(parsed.version).by_name(other)
            if argument is not None and argument.dest == item.argument.dest:
                del found[other]  # another flag of the same destination: the later one counts
        found.pop(item.name, None)
        found[item.name] = item.value
    return found


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A flag and the words behind it, up to the next flag."""

    index: int
    words: tuple[str, ...]
    value_indices: tuple[int, ...]
    opaque: bool


def _chunks(
    words: Sequence[str], parser: argparse.ArgumentParser, opaque: set[int]
) -> tuple[list[_Chunk], list[int]]:
    """Cut the words at the flags; words before the first flag, or too many, are stray."""
    starts = [
        index for index, word in enumerate(words) if index not in opaque and _is_flag(word, parser)
    ]
    stray = list(range(starts[0] if starts else len(words)))
    chunks: list[_Chunk] = []
    for start, end in pairwise([*starts, len(words)]):
        takes = _most_values(words[start], parser)
        last = min(end, start + 1 + takes)
        stray += range(last, end)
        values = tuple(range(start + 1, last))
        chunks.append(
            _Chunk(start, tuple(words[start:last]), values, any(i in opaque for i in values))
        )
    return chunks, stray


def _is_flag(word: str, parser: argparse.ArgumentParser) -> bool:
    """Whether argparse takes a word for a flag: known, unknown or ambiguous."""
    try:
        return parser._parse_optional(word) is not None
    except (_RefusedError, argparse.ArgumentError):  # an ambiguous prefix
        return True


def _most_values(word: str, parser: argparse.ArgumentParser) -> int:
    """How many words behind a flag belong to it at most."""
    try:
        found = parser._parse_optional(word)
    except (_RefusedError, argparse.ArgumentError):
        return 1
    option = found[0] if isinstance(found, list) else found  # a list from Python 3.12 on
    action, _, *rest = option if option is not None else (None, None)
    if action is None or any(isinstance(part, str) for part in rest[-1:]):
        return 0 if action is not None else 1 << 30
    if action.nargs in ("+", "*"):
        return 1 << 30
    return 0 if action.nargs == 0 else 1


def _parse_chunk(chunk: _Chunk, catalogue: Catalogue) -> ParsedArgument | ArgvProblem:
    written = chunk.words[0]
    parser = _parser(catalogue.version, checked=not chunk.opaque, required=False)
    namespace = argparse.Namespace()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _, extras = parser.parse_known_args(list(chunk.words), namespace)
    except (_RefusedError, argparse.ArgumentError) as error:
        return ArgvProblem(chunk.index, str(error), _hint(written, catalogue))
    if extras:
        return ArgvProblem(
            chunk.index, f"unrecognized arguments: {extras[0]}", _hint(written, catalogue)
        )
    spelling = catalogue.spelling(written)
    argument = catalogue.resolve_flag(written)
    if not isinstance(argument, Argument) or not isinstance(spelling, str):
        return ArgvProblem(chunk.index, f"unrecognized arguments: {written}")
    value = _value(argument, spelling, chunk, namespace)
    return ParsedArgument(
        argument, value, written.partition("=")[0], chunk.index, chunk.value_indices
    )


def _value(argument: Argument, spelling: str, chunk: _Chunk, namespace: argparse.Namespace) -> Any:
    """The value for a recipe: what was written, as YAML has it."""
    if not argument.kind.takes_value:
        return not _is_negation(argument, spelling)
    if (
        argument.kind is ArgumentKind.OPTIONAL_VALUE
        and len(chunk.words) == 1
        and ("=" not in chunk.words[0])
    ):
        return True
    value = getattr(namespace, argument.dest)
    constant = argument.kind is ArgumentKind.VALUE and argument.const is not None
    json_text = argument.type == "json" and isinstance(value, str)  # not a value of its own
    if (
        constant
        or json_text
        or argument.type in ("human_readable_int", "nullable_str", "json_list_type")
    ):
        raw = chunk.words[1] if len(chunk.words) > 1 else chunk.words[0].partition("=")[2]
        return value if isinstance(value, list | int) and str(value) == raw else raw
    return value


def _hint(written: str, catalogue: Catalogue) -> str | None:
    close = catalogue.close(written.partition("=")[0], 2)
    found = catalogue.resolve_flag(written)
    if isinstance(found, Argument) or not close:
        return None
    return f"did you mean {' or '.join(close)}?"


def _missing(catalogue: Catalogue, parsed: Sequence[ParsedArgument]) -> ArgvProblem | None:
    given = {item.argument.flag for item in parsed}
    missing = [a for a in catalogue.arguments.values() if a.required and a.flag not in given]
    if not missing:
        return None
    names = ", ".join("/".join(argument.flags) for argument in missing)
    return ArgvProblem(None, f"the following arguments are required: {names}")


def _whole(
    words: Sequence[str], catalogue: Catalogue, opaque: set[int]
) -> tuple[dict[str, Any], str | None]:
    if opaque:
        return {}, None
    parser = _parser(catalogue.version)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return vars(parser.parse_args(list(words))), None
    except (_RefusedError, argparse.ArgumentError) as error:
        return {}, str(error)


@lru_cache(maxsize=16)
def _parser(version: str, checked: bool = True, required: bool = True) -> _Parser:
    parser = _Parser(prog=PROGRAM)
    for argument in load_catalogue(version).arguments.values():
        _add(parser, argument, checked, required)
    return parser


def _add(parser: _Parser, argument: Argument, checked: bool, required: bool) -> None:
    flags = [flag for flag in argument.flags if not _is_negation(argument, flag)]
    common: dict[str, Any] = {"dest": argument.dest}
    kind = argument.kind
    if kind is ArgumentKind.FLAG:
        parser.add_argument(*flags, action="store_true", default=argument.default, **common)
    elif kind is ArgumentKind.FLAG_OFF:
        parser.add_argument(*flags, action="store_false", default=argument.default, **common)
    elif kind is ArgumentKind.CONSTANT:
        parser.add_argument(
            *flags, action="store_const", const=argument.const, default=argument.default, **common
        )
    elif kind is ArgumentKind.BOOLEAN:
        parser.add_argument(
            *flags, action=argparse.BooleanOptionalAction, default=argument.default, **common
        )
    elif kind is ArgumentKind.REFUSED:
        text = argument.replacement or "nothing: it was removed"
        parser.add_argument(*flags, action=_RefusingAction, nargs=0, metavar=text, **common)
    elif kind is ArgumentKind.IGNORED:
        parser.add_argument(*flags, action=_IgnoringAction, nargs=argument.nargs or 0, **common)
    elif kind.takes_value:
        if kind is ArgumentKind.OPTIONAL_VALUE:
            common["const"] = argument.const
        elif argument.const is not None:
            common |= {"action": _ConstantAction, "const": argument.const}
        if checked:
            common["choices"] = argument.choices
            common["type"] = CONVERSIONS.get(argument.type, str)
            if argument.dest == "lora_paths":
                common["type"] = lora_path
        parser.add_argument(
            *flags,
            nargs=argument.nargs,
            default=argument.default if not isinstance(argument.default, str) else None,
            required=argument.required and required,
            **common,
        )
        if isinstance(argument.default, str):  # argparse would convert it
            parser.set_defaults(**{argument.dest: argument.default})


def _is_negation(argument: Argument, flag: str) -> bool:
    return argument.kind is ArgumentKind.BOOLEAN and flag.startswith("--no-")
