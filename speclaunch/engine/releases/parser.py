"""The engine's argparse parser, built from a catalogue instead of from the engine.

SGLang and this module both use argparse, which handles prefixes, `--flag=value`, repeated flags and
negative numbers. The engine's own actions are in sglang/srt/arg_groups/argparse_actions.py of
0.5.23 (in server_args.py before 0.5.14).
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn

from speclaunch.engine.releases.argument import (
    Argument,
    ArgumentKind,
    converter,
    is_negation,
    lora_paths,
)
from speclaunch.engine.releases.catalogue import Catalogue

PROGRAM = "sglang serve"
"""Program name in the engine's own usage errors (server_args.py of 0.5.23)."""


class ArgumentsRefusedError(Exception):
    """Error: argparse would exit. The message is the parser's."""


class Parser(argparse.ArgumentParser):
    """A parser that raises :class:`ArgumentsRefusedError` where argparse would exit."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentsRefusedError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise ArgumentsRefusedError with the message or status (after `--help`)."""
        raise ArgumentsRefusedError(message or str(status))

    def run(self, args: Sequence[str], namespace: argparse.Namespace | None = None) -> Any:
        """Return the result of `parse_args`. Raises ArgumentsRefusedError if the engine would stop.

        If an engine action fails with a traceback, the message is the traceback's last line.
        """
        return self._guarded(partial(self.parse_args, list(args), namespace))

    def run_known(self, args: Sequence[str], namespace: argparse.Namespace) -> list[str]:
        found: tuple[Any, list[str]] = self._guarded(
            partial(self.parse_known_args, list(args), namespace)
        )
        return found[1]

    def run_piece(self, args: Sequence[str], namespace: argparse.Namespace) -> list[str]:
        """Parse one flag and its values with a `piece` parser, and return the surplus args.

        argparse would iterate over all arguments, to set defaults and to check required arguments.
        A piece needs neither, so argparse gets only the argument of this flag.
        """
        option = self.option_of(args[0])
        if not isinstance(option, argparse.Action):
            return self.run_known(args, namespace)
        alone = copy.copy(self)
        alone._actions = [option]
        return alone.run_known(args, namespace)

    def _guarded(self, parse: Any) -> Any:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return parse()
        except argparse.ArgumentError as error:
            raise ArgumentsRefusedError(str(error)) from None
        except (ValueError, TypeError, LookupError, AssertionError, RecursionError) as error:
            raise ArgumentsRefusedError(f"{type(error).__name__}: {error}") from None

    def option_of(self, word: str) -> argparse.Action | bool | None:
        """Return a flag's action; None if unknown or ambiguous, False if `word` is not a flag."""
        found = self._parsed_optional(word)
        if found is None:
            return None
        return found if found is False else found[0]

    def _parsed_optional(self, word: str) -> Any:
        try:
            found: Any = self._parse_optional(word)
        except (ArgumentsRefusedError, argparse.ArgumentError):  # an ambiguous prefix
            return None
        if isinstance(found, list):  # from Python 3.12 on; several: an ambiguous prefix
            return found[0] if len(found) == 1 else None
        return False if found is None else found


class _RefusingAction(argparse.Action):
    """A flag that the parser only rejects. `metavar` holds the remedy."""

    def __call__(self, *_: object) -> NoReturn:
        raise argparse.ArgumentError(self, f"this version refuses it; {self.metavar}")


class _IgnoringAction(argparse.Action):
    """A flag that the parser accepts with a warning, storing nothing (DeprecatedAction)."""

    def __call__(self, *_: object) -> None:
        """Store nothing."""


class _ConstantAction(argparse.Action):
    """A flag whose value is checked and then replaced by a constant.

    DeprecatedStoreConstAction of 0.5.23: `--monokernel-backend amd` stores True.
    """

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object
    ) -> None:
        setattr(namespace, self.dest, self.const)


class _LoraAction(argparse.Action):
    """The engine's LoRAPathAction. `metavar` holds the engine version."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        *_: object,
    ) -> None:
        setattr(namespace, self.dest, lora_paths(values or (), str(self.metavar)))


class _Identity:
    """A cache key that compares catalogues by identity."""

    __slots__ = ("catalogue",)

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue

    def __hash__(self) -> int:
        return id(self.catalogue)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.catalogue is self.catalogue


def parser_of(
    catalogue: Catalogue, *, checked: bool = True, required: bool = True, piece: bool = False
) -> Parser:
    """Return the cached parser of a version. Without `checked`, it accepts any text as a value.

    For a `piece` of a command line, arguments are not required and have no defaults. Storing every
    default on each call would triple the time.
    """
    return _built(_Identity(catalogue), checked, required and not piece, piece)


@lru_cache(maxsize=64)
def _built(key: _Identity, checked: bool, required: bool, piece: bool) -> Parser:
    # fixed width: otherwise argparse queries the terminal for each added argument
    parser = Parser(prog=PROGRAM, formatter_class=partial(argparse.HelpFormatter, width=80))
    version = key.catalogue.version
    for argument in key.catalogue.arguments.values():
        _add(parser, argument, version, checked, required)
    if piece:
        for action in parser._actions:
            action.default = argparse.SUPPRESS
        parser._defaults.clear()
    return parser


_STORE: dict[ArgumentKind, Any] = {
    ArgumentKind.FLAG: "store_true",
    ArgumentKind.FLAG_OFF: "store_false",
    ArgumentKind.CONSTANT: "store_const",
    ArgumentKind.BOOLEAN: argparse.BooleanOptionalAction,
    ArgumentKind.REFUSED: _RefusingAction,
    ArgumentKind.IGNORED: _IgnoringAction,
}


def _add(parser: Parser, argument: Argument, version: str, checked: bool, required: bool) -> None:
    flags = [flag for flag in argument.flags if not is_negation(argument, flag)]
    kind = argument.kind
    options: dict[str, Any] = {"dest": argument.dest, "default": argument.default}
    if kind in _STORE:
        options["action"] = _STORE[kind]
        if kind is ArgumentKind.CONSTANT:
            options["const"] = argument.const
        if kind is ArgumentKind.REFUSED:
            advice = f"use {argument.replacement}" if argument.replacement else "it was removed"
            options |= {"nargs": 0, "metavar": advice}
        if kind is ArgumentKind.IGNORED:
            options["nargs"] = argument.nargs or 0
    else:
        options |= _value_options(argument, version, checked)
        options["required"] = argument.required and required
    parser.add_argument(*flags, **options)
    if isinstance(argument.default, str):  # argparse would convert it
        parser.set_defaults(**{argument.dest: argument.default})


def _value_options(argument: Argument, version: str, checked: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"nargs": argument.nargs}
    if isinstance(argument.default, str):
        options["default"] = None
    if argument.kind is ArgumentKind.OPTIONAL_VALUE:
        options["const"] = argument.const
    elif argument.const is not None:
        options |= {"action": _ConstantAction, "const": argument.const}
    elif argument.kind is ArgumentKind.LIST and argument.nargs is None:
        options["action"] = "append"
    if checked:
        options |= {"choices": argument.choices, "type": converter(argument, version)}
        if argument.dest == "lora_paths":
            options |= {"action": _LoraAction, "metavar": version, "type": str}
    return options
