"""The entry point: verbs, `speclaunch recipe=…` for `launch`, and errors without tracebacks."""

from __future__ import annotations

import errno
import gc
import io
import os
import shlex
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from speclaunch import __version__
from speclaunch.cli.verbs import DEFAULT, VERBS, asked, stays
from speclaunch.errors import ExitCode, InputError, Problem, SpeclaunchError
from speclaunch.home import speclaunch_home
from speclaunch.resources import recipes_dir


class _Verbs(TyperGroup):
    """`speclaunch recipe=x …` is `speclaunch launch recipe=x …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {option for parameter in self.params for option in parameter.opts}
        named = args and (args[0] in self.commands or args[0].split("=")[0] in own)
        if args and not named and any("=" in arg and not arg.startswith("-") for arg in args):
            args = [DEFAULT, *args]
        elif args and not named and not args[0].startswith("-"):
            _meant_as_recipe(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # the framework would say "Aborted!" and exit 1
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def _meant_as_recipe(words: list[str]) -> None:
    """Name the command where a recipe stands in the place of a verb.

    Raises InputError. It is not started: the word may be a slip for a verb.
    """
    name = words[0]
    ours = (recipes_dir() / f"{name}.yaml").is_file()
    if ours or (name.endswith(".yaml") and Path(name).is_file()):
        command = shlex.join(["speclaunch", DEFAULT, *words])
        raise InputError(
            Problem(f"{name} is a recipe, not a verb", help=f"`{command}` launches it")
        )


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Launch and check speculative-decoding deployments of SGLang.\n\n"
    "`speclaunch recipe=NAME \\[key=value …]` is short for `speclaunch launch recipe=NAME …`.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"speclaunch {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _register(words: list[str]) -> None:
    """Load the verb that is asked for; of the others, where none is, the name and the summary.

    Verbs import what they need: a launch should not wait for what the others need, and the help
    for nothing.
    """
    wanted = asked(words)
    for verb in VERBS:
        if wanted is not None and verb.name != wanted:
            continue
        if wanted is None:
            app.command(verb.name, help=verb.help)(_not_loaded)
        elif verb.is_group:
            app.add_typer(_load(verb.where), name=verb.name)
        else:
            app.command(verb.name)(_load(verb.where))


def _not_loaded() -> None:
    raise AssertionError("a verb that is asked for is loaded")


def _load(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(f"speclaunch.cli.{module}"), name)


def main() -> None:
    """Run the command line and end the process with the contract's exit code."""
    gc.disable()  # imports and composition make no garbage; a tenth of the time to the spawn
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by who called us: `speclaunch … >&-`
            setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115 - for good
    sys.stdout, sys.stderr = _Output(sys.stdout), _Output(sys.stderr)
    if sys.argv[1:] == ["--version"]:  # the framework takes longer than the answer
        sys.stdout.write(f"speclaunch {__version__}\n")
        sys.stdout.flush()
        return
    try:
        if stays(sys.argv[1:]):
            from speclaunch.cli.launch_apart import launched

            code = launched()
            if code is not None:
                sys.stdout.flush()
                sys.exit(code)
        _register(sys.argv[1:])
        try:
            app(prog_name="speclaunch")
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except SpeclaunchError as error:
        from speclaunch.report.console import err
        from speclaunch.report.problems import show_problems

        show_problems(err(), error.problems)
        log = getattr(error, "log", None)
        if log is not None:
            err().print(f"  log: {log}", markup=False)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
            sys.stderr.write(_internal(error))
            sys.exit(ExitCode.INTERNAL)
        _drop(sys.stdout)
        sys.stderr.write(f"error: cannot write the output: {error.strerror}\n")
        sys.exit(ExitCode.FAILED)
    except Exception as error:  # the last line of defence: never a traceback at the user
        sys.stderr.write(_internal(error))
        sys.exit(ExitCode.INTERNAL)


class _Output(io.TextIOWrapper):
    """An output that goes nowhere once its reader went away (`speclaunch … 2>&1 | head`).

    The verb goes on to its end, so that its exit code holds: findings are no success because
    nobody read them all, and an engine that serves is not stopped.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # it closes the buffer when nobody holds it

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            _drop(self)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            _drop(self)


def _drop(output: TextIO) -> None:
    """Let what is still buffered go nowhere: the interpreter would try once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def _internal(error: Exception) -> str:
    where = speclaunch_home() / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    said = f"error: this is a bug in speclaunch: {type(error).__name__}: {error}\n"
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        Path(where).write_text(traceback.format_exc())
    except OSError:
        return said
    return f"{said}  the details are in {where}\n"


if __name__ == "__main__":
    main()
