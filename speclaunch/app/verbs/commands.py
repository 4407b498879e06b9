"""Typer commands made from `VERBS` and the declared options."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from speclaunch import __version__
from speclaunch.app.verbs.verbs import BENCH_RUN, DEFAULT, GROUPS, SHOWN, VERBS, Verb, verb_of
from speclaunch.core import ExitCode, InputError, recipes_dir

if TYPE_CHECKING:
    from speclaunch.app.verbs.options import Option


class _Verbs(TyperGroup):
    """Group that reads `speclaunch recipe=x …` as `speclaunch launch recipe=x …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {option for parameter in self.params for option in parameter.opts}
        named = args and (args[0] in self.commands or args[0].split("=")[0] in own)
        if args and not named and any("=" in arg and not arg.startswith("-") for arg in args):
            args = [DEFAULT, *args]
        elif args and not named and not args[0].startswith("-"):
            _meant_as_recipe(args)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - of click
        helps = {verb.name: verb.summary for verb in VERBS}
        widest = max(map(len, helps))
        for title, names in GROUPS:
            with formatter.section(title):
                rows = [(SHOWN.get(name, name).ljust(widest), helps[name]) for name in names]
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would print "Aborted!" and exit 1
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def _meant_as_recipe(words: list[str]) -> None:
    """Raise InputError with the launch command if a recipe is named instead of a verb.

    The recipe is not started, because the word may be a mistyped verb.
    """
    name = words[0]
    ours = (recipes_dir() / f"{name}.yaml").is_file()
    if ours or (name.endswith(".yaml") and Path(name).is_file()):
        command = shlex.join(["speclaunch", DEFAULT, *words])
        raise InputError(f"{name} is a recipe, not a command", help=f"launch it: {command}")
    _require_no_file(words, "lint")


def _require_no_file(words: list[str], *verbs: str) -> None:
    """Raise InputError with the verbs that check a file if a file is named instead of a verb."""
    if words and Path(words[0]).is_file():
        command = shlex.join(["speclaunch", *verbs, *words])
        raise InputError(f"{words[0]} is a file, not a command", help=f"check it: {command}")


class _Command(TyperCommand):
    """Verb whose help groups the options by section and ends with an example."""

    verb: Verb

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments as declared, without click's braces and second ellipsis."""
        pieces = [str(self.options_metavar)]
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = _shown_argument(parameter)
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the verb's own options, then the other sections of options."""
        declared = self.verb.declared.declared()
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                option = declared.get(str(parameter.name))
                section = "Options" if option is None else option.section
                for alias in () if option is None else option.aliases:
                    row = (row[0].replace(f", {alias}", "").replace(f"{alias}, ", ""), row[1])
                if parameter.param_type_name == "argument":
                    section, row = "Arguments", (_shown_argument(parameter), row[1])
                sections.setdefault(section, []).append(row)
        for section, rows in sections.items():
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_example(self.verb, ctx, formatter)


class _Group(TyperGroup):
    verb: Verb

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "check" in self.commands:
            _require_no_file(args, self.verb.name, "check")
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_example(self.verb, ctx, formatter)


def _write_example(verb: Verb, ctx: Any, formatter: Any) -> None:
    with formatter.section("Example"):
        formatter.write(f"  {ctx.command_path} {verb.example}".rstrip() + "\n")


def _shown_argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return f"{name}…" if parameter.nargs != 1 and "…" not in name else name


class _Bench(TyperGroup):
    """Group that reads `speclaunch bench recipe=x …` as `speclaunch bench run recipe=x …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            _require_no_typo(args, list(self.commands))
            args = [BENCH_RUN, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.commands[BENCH_RUN].format_help(ctx, formatter)
        rows = [(name, command.get_short_help_str(200)) for name, command in self.commands.items()]
        with formatter.section("Commands (speclaunch bench COMMAND …; default: run)"):
            formatter.write_dl(rows)


def _require_no_typo(args: list[str], verbs: list[str]) -> None:
    """Raise InputError if the word in the position of a recipe resembles a verb."""
    word = args[0] if args else ""
    if not word or word.startswith("-") or "=" in word or Path(word).exists():
        return
    from speclaunch.engine import suggest

    near = suggest(word, verbs)
    if near is None:
        return
    from speclaunch.deployments import recipe_names

    if word not in recipe_names(()):
        raise InputError(f"{word} is neither a recipe nor a command of bench", help=near)


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,  # bash splits words at `=`; `speclaunch completion` handles it
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text is fast: loading rich takes longer than the rest
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Launch and check speculative-decoding deployments of SGLang.\n\n"
    "`speclaunch recipe=NAME [key=value …]` is short for `speclaunch launch recipe=NAME …`.",
)


def _version(is_requested: bool) -> None:
    if is_requested:
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
    """Register the verb of a command line; without a verb, the names and summaries of all verbs.

    The options of other verbs are not loaded. A verb's module is loaded when the verb runs.
    """
    name = verb_of(words)
    for verb in VERBS:
        if name is None:
            app.command(verb.name, short_help=verb.summary)(_not_loaded)
        elif verb.name == name:
            _add(app, verb)


def _not_loaded() -> None:
    raise AssertionError("the requested verb was not loaded")


def _add(group: typer.Typer, verb: Verb) -> None:
    if not verb.below:
        command = type("Command", (_Command,), {"verb": verb})
        group.command(verb.name, cls=command, help=verb.help, short_help=verb.summary)(
            _function(verb)
        )
        return
    text = f"{verb.help}\n\nDefault command: `ls`." if verb.where else verb.help
    made = typer.Typer(
        cls=_Bench if verb.name == "bench" else type("Group", (_Group,), {"verb": verb}),
        rich_markup_mode=None,
        help=text,
        short_help=verb.summary,
        subcommand_metavar="[COMMAND] [ARGS]…" if verb.where else "COMMAND [ARGS]…",
        invoke_without_command=bool(verb.where),
        no_args_is_help=not verb.where and verb.name != "bench",
    )
    if verb.where:
        made.callback(help=text)(_function(verb))
    for below in verb.below:
        _add(made, below)
    group.add_typer(made, name=verb.name)


def _function(verb: Verb) -> Callable[..., None]:
    """Return a function for typer, with the verb's options as parameters."""
    declared = verb.declared.declared()
    keys: Collection[str] = ()
    if verb.declared.is_configurable:
        from speclaunch.engine import PROJECT_KEYS as keys

    def run(ctx: typer.Context, **values: Any) -> None:
        for name, option in declared.items():
            before = (ctx.obj or {}).get(name)  # `runs --dir D show`: value of the group
            if option.is_list:
                values[name] = (*(before or ()), *(values[name] or ()))
            elif values[name] is None:
                values[name] = before
        if verb.below:
            ctx.obj = values
        if not verb.below or ctx.invoked_subcommand is None:
            raise typer.Exit(verb.run(verb.declared(**values)))

    parameters = [Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [_parameter(name, option, keys) for name, option in declared.items()]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(name: str, option: Option[Any], keys: Collection[str]) -> Parameter:
    info: Any = typer.Option if option.names else typer.Argument
    limits = {} if option.kind not in (int, float) else {"min": option.least, "max": option.most}
    kind: Any = list[option.kind] if option.is_list else option.kind  # type: ignore[name-defined]
    default = option.default
    if option.is_required:
        default = Parameter.empty
    elif option.is_list or default is None:
        kind, default = kind | None, None
    key = option.names[0].removeprefix("--") if option.names else ""
    text = f"{option.help} In speclaunch.toml: `{key}`." if key in keys else option.help
    names = (*option.names, *option.aliases)
    about = info(*names, metavar=option.metavar, help=text, **limits)
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )
