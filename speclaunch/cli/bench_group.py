"""`speclaunch bench`: its words measure; `ls`, `show` and `compare` are about what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from speclaunch.cli.bench import OutputFiles, bench
from speclaunch.cli.formats import CertificateFormat, DifferenceFormat, OutputFormat
from speclaunch.cli.verbs import BENCH_RUN
from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem


class _Words(TyperGroup):
    """`speclaunch bench recipe=x …` is `speclaunch bench run recipe=x …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            _require_no_slip(args, list(self.commands))
            args = [BENCH_RUN, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of what is measured, then the verbs below."""
        self.commands[BENCH_RUN].format_help(ctx, formatter)
        rows = [(name, one.get_short_help_str(70)) for name, one in self.commands.items()]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)


def _require_no_slip(args: list[str], verbs: list[str]) -> None:
    """Raises InputError where a recipe's place has what is nearly a verb."""
    word = args[0] if args else ""
    if not word or word.startswith("-") or "=" in word or Path(word).exists():
        return
    near = suggest(word, verbs)
    if near is None:
        return
    from speclaunch.recipe.find_recipe import recipe_names

    if word not in recipe_names(()):
        raise InputError(Problem(f"{word} is neither a recipe nor a verb of bench", help=near))


app = typer.Typer(
    cls=_Words,
    rich_markup_mode=None,
    help="Measure whether speculation pays: two deployments, interleaved, with a confidence "
    "interval.",
)
app.command(BENCH_RUN)(bench)

Name = Annotated[
    str,
    typer.Argument(
        help="A comparison that is kept, its recipe's name (the newest), `last`, a directory, its "
        "bench.json, or a certificate as JSON."
    ),
]


@app.command()
def ls(
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """List what was measured, newest last."""
    from speclaunch.cli import bench_kept

    bench_kept.show_list(output_format)


@app.command()
def show(
    name: Name = "last",
    output_format: Annotated[
        CertificateFormat, typer.Option("--output-format", help="Output format.")
    ] = CertificateFormat.TEXT,
    output_file: OutputFiles = None,
    fail_under: Annotated[
        float | None,
        typer.Option(
            "--fail-under",
            metavar="RATIO",
            help="Exit 1 unless every interval lies above this speed-up.",
        ),
    ] = None,
) -> None:
    """Show again what was measured: as text, JSON, Markdown, or a page."""
    from speclaunch.cli import bench_kept
    from speclaunch.cli.bench_output import output

    raise typer.Exit(bench_kept.show(name, output(output_format, output_file or ()), fail_under))


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="As for `bench show`.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="As for `bench show`.")],
    output_format: Annotated[
        DifferenceFormat, typer.Option("--output-format", help="Output format.")
    ] = DifferenceFormat.TEXT,
    output_file: OutputFiles = None,
    fail_under: Annotated[
        float | None,
        typer.Option(
            "--fail-under",
            metavar="RATIO",
            help="Exit 1 unless the interval of every ratio of speed-ups lies above this one.",
        ),
    ] = None,
) -> None:
    """Compare two certificates: is the second one faster, and how sure is that."""
    from speclaunch.cli import bench_kept
    from speclaunch.cli.bench_output import difference_output

    told = difference_output(output_format, output_file or ())
    raise typer.Exit(bench_kept.compare((before, after), told, fail_under))
