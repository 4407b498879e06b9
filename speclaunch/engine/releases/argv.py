"""Parses a command line into server arguments, as the engine's own parser does.

The result (`error`, `values`) is argparse's own, from the parser that `parser.py` builds. argparse
stops at its first error. Therefore the args are also split at the flags and parsed piece by piece,
which finds every problem and the arg that caused it. Pieces with only one possible outcome skip
argparse.

Building a parser of all arguments takes as long as a complete check of a script. Most command lines
do not need it: their flags match the catalogue exactly, each has an accepted number of values, and
no value begins with a dash. Every other command line, and every rejection, goes to argparse.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from speclaunch.core import lazy
from speclaunch.engine.releases.argument import Argument, ArgumentKind, converter, is_negation
from speclaunch.engine.releases.catalogue import Ambiguous, Catalogue, UnknownFlag, held_versions
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.nearest import nearest
from speclaunch.engine.releases.renames import CONVERSIONS, REMOVALS, other_names

ANY_NUMBER = 1 << 30
"""A number of values that no command line reaches."""

NOT_PLAIN = object()
"""Result for a value that only argparse can accept or reject.

Source: argparse of Python 3.11, `_parse_optional`, `_get_option_tuples`, `_get_values`.
tests/engine/releases/test_plain_flags.py compares both ways on random command lines.
"""


def flag_of(word: str, catalogue: Catalogue) -> Argument | Ambiguous | UnknownFlag | None:
    """Return argparse's match for an arg; None if the arg is not a flag."""
    if not word.startswith("-"):
        return None
    if is_plain(word):
        return catalogue.resolve_flag(word)
    return _flag_by_argparse(word, catalogue)


def is_plain(word: str) -> bool:
    """True if an arg is certainly a flag, for which a prefix lookup suffices.

    An arg with a single dash may be a number, and an arg with a space may be a value.
    """
    return word.startswith("--") and " " not in word and word[2:3] not in ("", "=")


def _flag_by_argparse(word: str, catalogue: Catalogue) -> Argument | Ambiguous | UnknownFlag | None:
    from speclaunch.engine.releases.parser import parser_of  # noqa: PLC0415  most command lines need none

    found = parser_of(catalogue, required=False).option_of(word)
    if found is False:
        return None
    if isinstance(found, bool) or found is None:
        meant = catalogue.resolve_flag(word)
        return UnknownFlag(word) if isinstance(meant, Argument) else meant
    return catalogue.by_flag(found.option_strings[0]) or UnknownFlag(word)


def most_values(argument: Argument) -> int:
    """Return the maximum number of args that can follow an argument's flag as its values."""
    kind = argument.kind
    if kind is ArgumentKind.IGNORED:
        most = argument.nargs or 0
    elif kind.takes_value:
        most = 1 if argument.nargs is None else argument.nargs
    else:
        return 0
    if isinstance(most, int):
        return most
    return ANY_NUMBER if most in ("+", "*") else 1


def plain_value(
    argument: Argument, flag: str, args: Sequence[str], version: str, *, checked: bool
) -> Any:
    """Return the value that the engine stores for `args`, a flag and its values.

    `flag` is the full flag. Without `checked`, any text is accepted as a value. Return NOT_PLAIN if
    only argparse can decide.
    """
    _, equals, text = args[0].partition("=")
    values = (text,) if equals else tuple(args[1:])
    if not argument.kind.takes_value:
        return NOT_PLAIN if values else _switched(argument, flag)
    if not values and argument.kind is ArgumentKind.OPTIONAL_VALUE:
        return NOT_PLAIN if isinstance(argument.const, str) else argument.const
    if not _is_simple(argument, values):
        return NOT_PLAIN
    stored = _converted(argument, values, version) if checked else list(values)
    if stored is None:
        return NOT_PLAIN
    is_single = argument.nargs in (None, "?") and argument.kind is not ArgumentKind.LIST
    return stored[0] if is_single else stored  # appending starts from an empty list


def _switched(argument: Argument, flag: str) -> Any:
    kind = argument.kind
    if kind is ArgumentKind.BOOLEAN:
        return not is_negation(argument, flag)
    if kind is ArgumentKind.CONSTANT:
        return argument.const
    if kind in (ArgumentKind.FLAG, ArgumentKind.FLAG_OFF):
        return kind is ArgumentKind.FLAG
    return NOT_PLAIN


def _is_simple(argument: Argument, values: Sequence[str]) -> bool:
    """True if the number of values is allowed and no custom action handles them."""
    if any(not value or value.startswith("-") for value in values):
        return False
    constant = argument.const is not None and argument.kind is not ArgumentKind.OPTIONAL_VALUE
    if constant or argument.dest == "lora_paths":
        return False
    nargs, count = argument.nargs, len(values)
    if nargs in (None, "?"):
        return count == 1
    return count == nargs if isinstance(nargs, int) else nargs in ("+", "*") and count > 0


def _converted(argument: Argument, values: Sequence[str], version: str) -> list[Any] | None:
    convert = converter(argument, version)
    try:
        found = [convert(value) for value in values]
    except Exception:  # any kind: argparse has the message for it
        return None
    if argument.choices is not None and any(value not in argument.choices for value in found):
        return None
    return found


_CHOICE = lazy(r"invalid choice: (?:'(?P<text>[^']*)'|(?P<bare>[^\s(]+))")
_ADVICE = (
    # argparse's message, and the remedy with {flag}, {name} and {example}
    ("invalid int value: ", "write a whole number for {name}{example}"),
    ("invalid float value: ", "write a number for {name}{example}"),
    ("invalid loads value: ", "write JSON for {name}: '{{\"key\": 1}}'"),
    ("expected one argument", "give {flag} a value, or remove it"),
    ("expected at least one argument", "give {flag} its values, or remove it"),
    ("ignored explicit argument", "write {flag} without a value, because it is a switch"),
)


def value_advice(message: str, argument: Argument, catalogue: Catalogue) -> str | None:
    """Return the remedy for an argparse message about `argument`; None if there is none."""
    if argument.kind is ArgumentKind.REFUSED:
        return _refused(argument.name)
    if found := _CHOICE.search(message):
        return _choice(found["text"] or found["bare"] or "", argument, catalogue)
    default = argument.default
    number = isinstance(default, int | float) and not isinstance(default, bool)
    example = f", {default} for example" if number else ""
    for mark, advice in _ADVICE:
        if mark in message:
            return advice.format(flag=argument.flag, name=argument.name, example=example)
    return None


def _refused(name: str) -> str | None:
    """Return the remedy for a flag that the parser only rejects; None if unknown."""
    became = next((entry for entry in CONVERSIONS if entry.old == name), None)
    if became is not None:
        return f"write --{became.new.replace('_', '-')} {became.value}"
    return REMOVALS.get(name)


def _choice(value: str, argument: Argument, catalogue: Catalogue) -> str:
    near = nearest(value, [str(choice) for choice in argument.choices or ()], 1)
    if near:
        return f"did you mean {near[0]}?"
    taken = _taken_by(value, argument)
    if taken:
        several = f"{taken[0]} to {taken[-1]} accept"
        span = f"{taken[0]} accepts" if len(taken) == 1 else several
        return f"SGLang {span} {value}; for {catalogue.version}, choose a listed value"
    return f"set {argument.name} to a listed value"


def _taken_by(value: str, argument: Argument) -> list[str]:
    """Return the releases whose parser accepts `value` for the argument."""
    found = []
    for version in held_versions():
        catalogue = load_catalogue(version)
        names = (argument.name, *other_names(argument.name))
        its = next(
            (candidate for candidate in map(catalogue.by_name, names) if candidate is not None),
            None,
        )
        if its is not None and value in map(str, its.choices or ()):
            found.append(version)
    return found


__all__ = ["ArgvProblem", "ParsedArgument", "ParsedArguments", "args_of", "parse_argv"]


class ParsedArgument(Struct, frozen=True):
    """One argument on a command line.

    - `value`: its value in a recipe. `stored`: the value that the engine stores.
    - `index`: the position of its flag. `value_indices`: the positions of its values; empty for a
      switch or for `--flag=value`.
    - `written`: the flag as it appears on the command line.
    """

    argument: Argument
    value: Any
    written: str
    index: int
    value_indices: tuple[int, ...]
    stored: Any = None

    @property
    def name(self) -> str:
        return self.argument.name

    @property
    def dest(self) -> str:
        """The destination in the engine. Two names can share it."""
        return self.argument.dest


_BLANK = "delete this blank; in a shell, a backslash continues a line only at its very end"
"""Advice for a blank arg, which a shell also makes of a backslash and a space."""


class ArgvProblem(Struct, frozen=True):
    """An engine error or a hint. `index` is the arg's position; None for a missing arg."""

    index: int | None
    message: str
    help: str | None = None


class ParsedArguments(Struct, frozen=True):
    """A command line parsed for one engine version."""

    version: str
    parsed: tuple[ParsedArgument, ...]
    problems: tuple[ArgvProblem, ...]
    error: str | None
    """The first error of the engine's parser; None if it accepts the args."""
    values: Mapping[str, Any] = {}
    """Effective values by destination, including the parser's defaults; empty after an error."""
    hints: tuple[ArgvProblem, ...] = ()
    """Hints about arguments that the engine accepts and then ignores."""


def parse_argv(
    args: Sequence[str],
    catalogue: Catalogue,
    *,
    opaque: Container[int] = (),
    with_values: bool = True,
) -> ParsedArguments:
    """Parse the args after `sglang serve` or `python -m sglang.launch_server`.

    `opaque`: positions of args that could not be evaluated (an unset shell variable). Their types
    and choices are not checked. Without `with_values`, `error` and `values` are not computed, which
    halves the time.
    """
    unknown = {index for index in range(len(args)) if index in opaque}
    chunks, stray = _chunks(args, catalogue, unknown)
    parsed: list[ParsedArgument] = []
    problems: list[ArgvProblem] = []
    for chunk in chunks:
        outcome = _parse_chunk(chunk, catalogue)
        if isinstance(outcome, ParsedArgument):
            parsed.append(outcome)
        else:
            problems.append(outcome)
    for index in stray:
        arg = args[index]
        advice = _BLANK if arg in (" ", "\t") else None
        shown = arg if arg.strip() else repr(arg)
        problems.append(ArgvProblem(index, f"unrecognized arguments: {shown}", advice))
    missing = _missing(catalogue, parsed)
    if missing:
        problems.append(missing)
    problems.sort(key=lambda problem: len(args) if problem.index is None else problem.index)
    values: Mapping[str, Any] = {}
    error = None
    if with_values:
        values, error = (
            _pieced(parsed, problems, catalogue) if unknown else _parse_all(args, catalogue)
        )
    return ParsedArguments(
        catalogue.version, tuple(parsed), tuple(problems), error, values, _hints(parsed)
    )


def args_of(parsed: ParsedArguments) -> dict[str, Any]:
    """Return the recipe `args:` from which `render_args()` renders the same command.

    As in the parser, the last of several flags for one destination wins. Appended values become one
    list.
    """
    found: dict[str, ParsedArgument] = {}
    appended: dict[str, list[Any]] = {}
    for item in parsed.parsed:
        if item.argument.kind in (ArgumentKind.HELP, ArgumentKind.REFUSED):
            continue
        same = [name for name, other in found.items() if other.dest == item.dest]
        for name in same:
            if item.argument.kind is not ArgumentKind.IGNORED:
                del found[name]
        found[item.name] = item
        if _appends(item.argument):
            appended.setdefault(item.name, []).append(item.value)
    return {name: appended.get(name, item.value) for name, item in found.items()}


class _Chunk(Struct, frozen=True):
    """A flag and the args after it, up to the next flag."""

    index: int
    words: tuple[str, ...]
    value_indices: tuple[int, ...]
    opaque: bool

    @property
    def texts(self) -> tuple[str, ...]:
        """The unparsed texts of the values."""
        _, equals, text = self.words[0].partition("=")
        return (text,) if equals else self.words[1:]


def _chunks(
    args: Sequence[str], catalogue: Catalogue, opaque: set[int]
) -> tuple[list[_Chunk], list[int]]:
    """Return the args split at the flags, and the positions of stray args.

    Args before the first flag, surplus args, and everything from `--` on are stray, because the
    engine has no positional arguments.
    """
    stop = next(
        (index for index, word in enumerate(args) if word == "--" and index not in opaque),
        len(args),
    )
    starts = [index for index in range(stop) if _is_flag(args[index], catalogue, index in opaque)]
    stray = list(range(starts[0] if starts else stop))
    chunks: list[_Chunk] = []
    for start, end in pairwise([*starts, stop]):
        last = min(end, start + 1 + _most_values(args[start], catalogue))
        stray += range(last, end)
        chunks.append(
            _Chunk(
                start,
                tuple(args[start:last]),
                tuple(range(start + 1, last)),
                any(index in opaque for index in range(start, last)),
            )
        )
    return chunks, [*stray, *range(stop, len(args))]


def _is_flag(word: str, catalogue: Catalogue, opaque: bool) -> bool:
    """True if argparse would read an arg as a flag: known, unknown or ambiguous.

    Includes args that could not be evaluated, if their flag is readable: `--port=$PORT`.
    """
    if not word.startswith("-"):
        return False
    found = flag_of(word, catalogue)
    if opaque:
        return isinstance(found, Argument) and "=" in word
    return found is not None


def _most_values(word: str, catalogue: Catalogue) -> int:
    found = flag_of(word, catalogue)
    if isinstance(found, Argument):
        return most_values(found) if catalogue.by_flag(word) or "=" not in word else 0
    if isinstance(found, Ambiguous):
        return max(most_values(_of_flag(flag, catalogue)) for flag in found.candidates)
    return ANY_NUMBER  # unknown: everything up to the next flag


def _of_flag(flag: str, catalogue: Catalogue) -> Argument:
    found = catalogue.by_flag(flag)
    assert found is not None  # noqa: S101  a flag of this catalogue
    return found


def _parse_chunk(chunk: _Chunk, catalogue: Catalogue) -> ParsedArgument | ArgvProblem:
    written = chunk.words[0]
    flag = catalogue.full_flag(written)
    argument = catalogue.resolve_flag(written)
    found = _stored(chunk, argument, flag, catalogue)
    if isinstance(found, ArgvProblem):
        return found
    if found.extra or not isinstance(argument, Argument) or not isinstance(flag, str):
        message = f"unrecognized arguments: {found.extra or written}"
        return ArgvProblem(chunk.index, message, _hint(written, catalogue))
    return ParsedArgument(
        argument,
        _value(argument, flag, chunk, found.value),
        written.partition("=")[0],
        chunk.index,
        chunk.value_indices,
        found.value,
    )


class _Stored(Struct, frozen=True):
    """The outcome of parsing a flag and its values: the stored value, or the first surplus arg."""

    value: Any = None
    extra: str = ""


def _stored(
    chunk: _Chunk,
    argument: Argument | Ambiguous | UnknownFlag,
    flag: str | Ambiguous | UnknownFlag,
    catalogue: Catalogue,
) -> _Stored | ArgvProblem:
    written, values = chunk.words[0], chunk.words[1:]
    if is_plain(written):
        if isinstance(argument, Argument) and isinstance(flag, str):
            checked = not chunk.opaque
            value = plain_value(argument, flag, chunk.words, catalogue.version, checked=checked)
            if value is not NOT_PLAIN:
                return _Stored(value)
        elif not any(value.startswith("-") for value in values):
            if isinstance(argument, Ambiguous):
                return ArgvProblem(chunk.index, _several(argument), _hint(written, catalogue))
            return _Stored(extra=written)
    return _by_argparse(chunk, argument, catalogue)


def _several(found: Ambiguous) -> str:
    """Return argparse's message for an ambiguous flag. It lists `--help` first."""
    matches = sorted(found.candidates, key="--help".__ne__)
    return f"ambiguous option: {found.token} could match {', '.join(matches)}"


def _by_argparse(
    chunk: _Chunk, argument: Argument | Ambiguous | UnknownFlag, catalogue: Catalogue
) -> _Stored | ArgvProblem:
    from argparse import Namespace  # noqa: PLC0415  most command lines need none of it

    from speclaunch.engine.releases.parser import ArgumentsRefusedError, parser_of  # noqa: PLC0415

    parser = parser_of(catalogue, checked=not chunk.opaque, piece=True)
    namespace = Namespace()
    try:
        extras = parser.run_piece(chunk.words, namespace)
    except ArgumentsRefusedError as error:
        hint = _hint(chunk.words[0], catalogue, str(error))
        return ArgvProblem(chunk.index, str(error), hint)
    if extras:
        return _Stored(extra=extras[0])
    value = getattr(namespace, argument.dest, None) if isinstance(argument, Argument) else None
    return _Stored(value)


def _value(argument: Argument, flag: str, chunk: _Chunk, stored: Any) -> Any:
    """Return the recipe value: a native YAML value if that is lossless, else the unchanged text."""
    kind, texts = argument.kind, chunk.texts
    if not kind.takes_value:
        return not is_negation(argument, flag)
    if kind is ArgumentKind.OPTIONAL_VALUE and not texts:
        return True
    if kind is ArgumentKind.LIST and not _appends(argument):
        return stored if isinstance(stored, list) else list(texts)
    if _appends(argument) and isinstance(stored, list) and len(stored) == 1:
        (stored,) = stored
    text = texts[0] if texts else ""
    natural = _NATURAL.get(argument.type, ())
    if argument.const is not None and kind is ArgumentKind.VALUE:
        natural = ()  # the constant is stored, the text was checked
    if argument.type == "human_readable_int" and str(stored) != text.strip():
        natural = ()  # preserve a suffix: 32k
    return stored if isinstance(stored, natural) else text


_JSON = (dict, list, int, float)  # as text it loses its quotes, and null is the default
_NATURAL: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "human_readable_int": (int,),
    "json": _JSON,
    "json_list_type": _JSON,
    "parse_cuda_graph_config_arg": _JSON,
}
"""Python types that YAML represents without loss, by argument type."""


def _appends(argument: Argument) -> bool:
    return argument.kind is ArgumentKind.LIST and argument.nargs is None


def _hint(written: str, catalogue: Catalogue, message: str = "") -> str | None:
    found = catalogue.resolve_flag(written)
    if isinstance(found, Argument):
        return value_advice(message, found, catalogue)
    if isinstance(found, Ambiguous):  # the message lists them all
        return "write the intended flag in full"
    close = catalogue.close(written.partition("=")[0], 2)
    return f"did you mean {' or '.join(close)}?" if close else None


def _hints(parsed: Sequence[ParsedArgument]) -> tuple[ArgvProblem, ...]:
    """Return hints about `--config` forms that the engine's test `"--config" in argv` misses."""
    return tuple(
        ArgvProblem(
            item.index,
            "the engine reads no config file: `--config` must be a separate argument",
            "use `--config FILE`",
        )
        for item in parsed
        if item.name == "config" and (item.written != "--config" or not item.value_indices)
    )


def _missing(catalogue: Catalogue, parsed: Sequence[ParsedArgument]) -> ArgvProblem | None:
    present = {item.argument.flag for item in parsed}
    missing = [argument for argument in catalogue.required if argument.flag not in present]
    if not missing:
        return None
    names = ", ".join("/".join(argument.flags) for argument in missing)
    return ArgvProblem(None, f"the following arguments are required: {names}")


def _parse_all(args: Sequence[str], catalogue: Catalogue) -> tuple[Mapping[str, Any], str | None]:
    from speclaunch.engine.releases.parser import ArgumentsRefusedError, parser_of  # noqa: PLC0415

    try:
        return vars(parser_of(catalogue).run(args)), None
    except ArgumentsRefusedError as error:
        return {}, str(error)


def _pieced(
    parsed: Sequence[ParsedArgument], problems: Sequence[ArgvProblem], catalogue: Catalogue
) -> tuple[Mapping[str, Any], str | None]:
    """Return the stored values and None, or no values and the first error in argparse's order."""
    if problems:
        return {}, min(problems, key=_precedence).message
    from speclaunch.engine.releases.parser import parser_of  # noqa: PLC0415

    values: dict[str, Any] = vars(parser_of(catalogue, required=False).run(()))
    for item in parsed:
        if item.argument.kind is ArgumentKind.IGNORED:
            continue
        before = values.get(item.dest)
        added = _appends(item.argument) and isinstance(before, list)
        values[item.dest] = [*before, *item.stored] if added and before else item.stored
    return values, None


def _precedence(problem: ArgvProblem) -> int:
    """Return an error's rank in argparse's order: classification, parsing, leftover checks."""
    for place, begin in enumerate(("ambiguous", "argument", "the following", "unrecognized")):
        if problem.message.startswith(begin):
            return place
    return 1
