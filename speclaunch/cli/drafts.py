"""`speclaunch drafts`: the ways to speculate for a target."""

from __future__ import annotations

from typing import Annotated

import typer

from speclaunch.cli.check_options import engine_versions, lookup
from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.options import Assume, HardwareName, ModelDirs, Online
from speclaunch.engine.versions import ascending
from speclaunch.errors import ExitCode
from speclaunch.planning.draft_listing import find_target, listing
from speclaunch.report.console import out
from speclaunch.report.drafts import drafts_document, show_drafts


def drafts(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The model to speculate for: `organisation/name`, or a directory.",
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="VERSION[,VERSION…]",
            help="Only these SGLang versions count. Default: all that speclaunch knows.",
        ),
    ] = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show the ways that no version accepts.")
    ] = False,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """List the ways to speculate for a target: its MTP layers, published drafts, NGRAM.

    Each with the engine versions that take it, and with --hardware what it costs in memory.
    Nothing is started. Exit 1 where no version takes any.
    """
    sources = lookup(models, hardware, online=online, assume=assume)
    versions = ascending(engine_versions(engine))
    found = listing(find_target(target, sources), sources, versions)
    if output_format is OutputFormat.JSON:
        typer.echo(drafts_document(found))
    else:
        show_drafts(out(), found, refused=every)
    if not any(one.newest for one in found.ways):
        raise typer.Exit(ExitCode.FAILED)
