"""The entry point: fast paths without typer, and errors without tracebacks."""

from __future__ import annotations

import errno
import gc
import io
import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from speclaunch import __version__
from speclaunch.app.verbs.verbs import (
    COMPLETION,
    DEFAULT,
    Verb,
    is_foreground_launch,
    misspelled_verb,
    rewrite_multirun,
    verb_named,
    verb_of,
)
from speclaunch.core import ExitCode, SpeclaunchError, errors

if TYPE_CHECKING:
    from speclaunch.app.verbs.options import Option, VerbOptions
    from speclaunch.core import CommandGuard


QUICK = ("lint", DEFAULT, "watch")


def quick_explain(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """True if `words` are `explain CODE`, unless a shell requests completions."""
    plain = len(words) == 2 and words[0] == "explain" and not words[1].startswith("-")
    return plain and COMPLETION not in environment


def quick_command(
    words: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[Verb, VerbOptions] | None:
    """Return the verb and the options of a plain command line; None if typer has to parse it."""
    name = verb_of(words)
    if name not in QUICK or COMPLETION in environment:
        return None
    if words[0] == name:
        words = words[1:]
    elif words[0].startswith("-"):
        return None
    verb = verb_named(name)
    options = plain_options(verb.declared, words)
    return None if options is None else (verb, options)


def plain_options(declared: type[VerbOptions], words: Sequence[str]) -> VerbOptions | None:
    """Return the options of a plain command line; None if typer has to parse it."""
    by_name = {
        name: (attribute, option)
        for attribute, option in declared.declared().items()
        for name in option.spellings
    }
    found: dict[str, Any] = {}
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            arguments.append(word)
            continue
        name, equals, text = word.partition("=")
        if name not in by_name:
            return None
        attribute, option = by_name[name]
        if option.is_flag:
            if equals:
                return None
            found[attribute] = not name.startswith("--no-") or name in option.names
            continue
        if equals and not name.startswith("--"):
            return None  # `-o=x`: typer reads the value `=x`
        if not equals:
            text = next(rest, "-")
            if text.startswith("-"):
                return None
        value = _value(option, text)
        if value is None:
            return None
        found[attribute] = (*found.get(attribute, ()), value) if option.is_list else value
    return _with_arguments(declared, arguments, found)


def _with_arguments(
    declared: type[VerbOptions], words: list[str], found: dict[str, Any]
) -> VerbOptions | None:
    for attribute, option in declared.declared().items():
        if option.names:
            continue
        if not words and option.is_required:
            return None
        if option.is_list:
            found[attribute], words = tuple(words), []
        elif words:
            found[attribute] = words.pop(0)
    return None if words else declared(**found)


def _value(option: Option[Any], text: str) -> Any:
    kind: Any = option.kind
    if issubclass(kind, StrEnum):
        return next((member for member in kind if member.value == text), None)
    if kind in (int, float):
        digits, _, fraction = text.partition(".") if kind is float else (text, "", "")
        if not (text.isascii() and digits.isdigit() and (fraction or "0").isdigit()):
            return None
        number = kind(text)
        in_range = (option.least is None or option.least <= number) and (
            option.most is None or number <= option.most
        )
        return number if in_range else None
    return kind(text)


_LONGEST_NAME = 60
"""Maximum length of a file name in an error, in characters."""


def main() -> None:
    """Run the command line and exit with an `ExitCode`."""
    gc.disable()  # imports and composition make no garbage; saves a tenth of the time to spawn
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the caller: `speclaunch … >&-`
            setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115 - never closed
    sys.stdout, sys.stderr = _Output(sys.stdout), _Output(sys.stderr)
    if sys.argv[1:] == ["--version"]:  # loading typer takes longer than the answer
        sys.stdout.write_commands(f"speclaunch {__version__}\n")
        sys.stdout.flush()
        return
    sys.argv[1:] = rewrite_multirun(sys.argv[1:])
    errors.command_line = tuple(sys.argv[1:])
    try:
        try:
            _answer(sys.argv[1:])
        finally:
            sys.stdout.flush()  # here, a full disk can still be reported
    except KeyboardInterrupt:  # for example during an import
        sys.exit(ExitCode.INTERRUPTED)
    except SpeclaunchError as error:
        from speclaunch.app.output.console import err_lines
        from speclaunch.app.output.problems import show_problems

        show_problems(err_lines(), error.problems)
        log = getattr(error, "log", None)
        if log is not None:
            err_lines().print(f"  log: {log}")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # only user input has such names
            name = str(error.filename)
            clipped = name if len(name) < _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
            sys.stderr.write(f"error: {clipped!r}: {error.strerror}\n")
            sys.exit(ExitCode.USAGE)
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
            sys.stderr.write(_internal(error))
            sys.exit(ExitCode.INTERNAL)
        _drop(sys.stdout)
        sys.stderr.write(f"error: cannot write the output: {error.strerror}\n")
        sys.exit(ExitCode.FAILED)
    except Exception as error:  # never show the user a traceback
        sys.stderr.write(_internal(error))
        sys.exit(ExitCode.INTERNAL)


def _answer(words: list[str]) -> None:
    if COMPLETION in os.environ:  # a shell requests completions
        from speclaunch.app.verbs.completing import answer

        if os.environ[COMPLETION] in ("bash", "zsh", "fish"):
            answer(words)
        return
    misspelled = misspelled_verb(words)
    if misspelled is not None:
        raise errors.InputError(misspelled)
    if quick_explain(words):
        from speclaunch.app.verbs.rules import explain_code

        explain_code(words[1])
        return
    if is_foreground_launch(words):
        from speclaunch.app.verbs.launch_process import launched

        code = launched(words)
        if code is not None:
            sys.stdout.flush()
            sys.exit(code)
    command = quick_command(words)
    if command is not None:
        verb, options = command
        sys.exit(verb.run(options))
    from speclaunch.app.verbs.commands import app, register

    register(words)
    if not words:  # show the help on standard output, but exit 2
        app(["--help"], prog_name="speclaunch", standalone_mode=False)
        sys.exit(ExitCode.USAGE)
    app(prog_name="speclaunch")


class _Output(io.TextIOWrapper):
    """Output stream that redacts secrets and escapes control characters and workflow commands.

    After the reader has closed the pipe (`speclaunch … 2>&1 | head`), text is dropped. The verb
    still runs to its end: findings must set the exit code even if not all are read, and a serving
    engine must not stop.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # without a reference, it would close the buffer
        self._guarded: CommandGuard | None = None

    def write(self, text: str) -> int:
        from speclaunch.core import printable

        return self.write_drawn(printable(text))

    def write_drawn(self, text: str) -> int:
        """Write rich's output, including terminal codes; its text is already escaped."""
        from speclaunch.core import redact

        return self.write_commands(self._without_commands(redact(text)))

    def write_exact(self, text: str) -> int:
        """Write the content of a file unchanged, unless a terminal or a CI service reads it."""
        from speclaunch.core import obeys_commands, printable

        if self.isatty() or (obeys_commands() and not self._is_file()):
            text = self._without_commands(printable(text))
        return self.write_commands(text)

    def write_commands(self, text: str) -> int:
        """Write text that may contain speclaunch's own CI commands, such as `::error`."""
        try:
            return super().write(text)
        except BrokenPipeError:
            _drop(self)
            return len(text)

    def _without_commands(self, text: str) -> str:
        from speclaunch.core import CommandGuard, obeys_commands

        if not obeys_commands():
            return text
        self._guarded = self._guarded or CommandGuard()
        return self._guarded.text(text)

    def _is_file(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            _drop(self)


def _drop(output: TextIO) -> None:
    """Redirect a stream to /dev/null, because the interpreter flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def _internal(error: Exception) -> str:
    import traceback

    from speclaunch.core import make_private, masked, redact, speclaunch_home

    where = speclaunch_home() / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    text = f"error: this is a bug in speclaunch: {type(error).__name__}: {masked(str(error))}\n"
    try:
        make_private(where.parent)
        details = traceback.format_exc()
        handle = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(map(masked, redact(details).split("\n"))))
    except OSError:
        return text
    return f"{text}  the details are in {where}\n"


if __name__ == "__main__":
    main()
