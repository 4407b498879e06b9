"""The verbs as typer knows them, and `speclaunch recipe=…` for `launch`."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from speclaunch import __version__
from speclaunch.cli.verbs import DEFAULT, GROUPS, SHOWN, VERBS, asked
from speclaunch.errors import ExitCode, InputError, Problem
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

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - of click
        """Write the verbs by what they are for."""
        helps = {verb.name: verb.help for verb in VERBS}
        widest = max(map(len, helps))
        for title, names in GROUPS:
            with formatter.section(title):
                rows = [(SHOWN.get(name, name).ljust(widest), helps[name]) for name in names]
                formatter.write_dl(rows)

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
    add_completion=False,  # `speclaunch completion` does it: bash splits words at `=`
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text is shown at once: rich takes longer than the rest
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Launch and check speculative-decoding deployments of SGLang.\n\n"
    "`speclaunch recipe=NAME [key=value …]` is short for `speclaunch launch recipe=NAME …`.",
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


def register(words: list[str]) -> None:
    """Load the verb that is asked for; of the others, where none is, the name and the summary.

    Verbs import what they need: a launch should not wait for what the others need, and the help
    for nothing.
    """
    wanted = asked(words)
    for verb in VERBS:
        if wanted is not None and verb.name != wanted:
            continue
        if wanted is None:
            app.command(verb.name, short_help=verb.help)(_not_loaded)
        elif verb.is_group:
            app.add_typer(_load(verb.where), name=verb.name)
        else:
            app.command(verb.name)(_load(verb.where))


def _not_loaded() -> None:
    raise AssertionError("a verb that is asked for is loaded")


def _load(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(f"speclaunch.cli.{module}"), name)
