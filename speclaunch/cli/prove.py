"""`speclaunch prove`: whether speculation leaves every answer as it was."""

from __future__ import annotations

from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.options import (
    ConfigDirs,
    EngineVersion,
    HardwareName,
    ModelDirs,
    Overrides,
    TrustEngine,
)
from speclaunch.facts.trusted_programs import trust_all


def prove(
    overrides: Overrides,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="NAME|FILE",
            help="Prompts: code, chat, extraction, repetition, or a file (JSONL, or "
            "ShareGPT's). Repeatable. Default: all four.",
        ),
    ] = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests at a time, for example 1,4,16.")
    ] = "1,4",
    context: Annotated[
        str,
        typer.Option("--context", help="Lengths of the prompts in words; 0: as they are."),
    ] = "0,300",
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", min=2, help="Tokens of each answer.")
    ] = 64,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            min=0,
            help="Also draw so many answers a prompt at a temperature of 1, and compare how often "
            "each token comes.",
        ),
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the starts and requests; start nothing.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Ask all again, also where an interrupted proof could go on."),
    ] = False,
    config_dir: ConfigDirs = None,
    engine: EngineVersion = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
    trust_engine: TrustEngine = False,
) -> None:
    """Prove that speculation leaves answers as they are: greedy ones, token by token."""
    if trust_engine:
        trust_all()
    from speclaunch.cli import proving  # a completion of options needs nothing of it

    words = proving.ProveWords(
        overrides=tuple(overrides),
        workloads=tuple(workload or ()),
        concurrency=concurrency,
        context=context,
        output_tokens=output_tokens,
        samples=samples,
        dry_run=dry_run,
        fresh=fresh,
        config_dirs=tuple(config_dir or ()),
        engine=engine,
        hardware=hardware,
        models=tuple(models or ()),
        output_format=output_format,
    )
    raise typer.Exit(proving.run_prove(words))
