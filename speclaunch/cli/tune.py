"""`speclaunch tune`: which settings of speculation are fastest here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.load_options import InputTokens, OutputTokens, Requests
from speclaunch.cli.options import (
    ConfigDirs,
    EngineVersion,
    HardwareName,
    ModelDirs,
    Overrides,
    TrustEngine,
)
from speclaunch.cli.writing import Force, Overwrite
from speclaunch.facts.trusted_programs import trust_all


def tune(
    overrides: Overrides,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="OBJECTIVE",
            help="`latency` (of one request at a time), `throughput@N` (of N; several: "
            "`throughput@1,8,32`), or `goodput@N:ttft=MS,tpot=MS`.",
        ),
    ] = "latency",
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            metavar="NAME|FILE",
            help="Prompts: code, chat, extraction, repetition, random, or a file (JSONL, "
            "or ShareGPT's).",
        ),
    ] = "chat",
    starts: Annotated[
        int,
        typer.Option(
            "--starts", min=2, max=1000, help="Engine starts at most, those of --verify included."
        ),
    ] = 12,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=1, help="Begin no start that would end later than this."),
    ] = None,
    verify: Annotated[
        int,
        typer.Option(
            "--verify",
            min=0,
            max=8,
            help="How many of the best are compared with the recipe's own, in rounds that take "
            "turns.",
        ),
    ] = 2,
    verify_starts: Annotated[
        int,
        typer.Option(
            "--verify-starts",
            min=1,
            max=100,
            help="Start each side of this comparison so often; from 3 on its intervals hold what "
            "differs from start to start.",
        ),
    ] = 1,
    draft_tokens: Annotated[
        int | None,
        typer.Option("--draft-tokens", min=2, help="Draft tokens at most of a setting."),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=1000, help="Rounds of each setting.")
    ] = 3,
    requests: Requests = 8,
    output_tokens: OutputTokens = 128,
    input_tokens: InputTokens = 512,
    write: Annotated[
        bool,
        typer.Option("--write", help="Edit the recipe, where the new setting is shown faster."),
    ] = False,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            "--output-file",
            metavar="FILE",
            help="Write the tuned recipe to FILE instead.",
        ),
    ] = None,
    adaptive_config: Annotated[
        Path | None,
        typer.Option(
            "--adaptive-config",
            metavar="FILE",
            help="Write SGLang's file of steps by batch size (speculative_adaptive_config) for "
            "the loads of throughput@N,….",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the starts and the time they take; start nothing."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what was measured before.")
    ] = False,
    overwrite: Overwrite = False,
    force: Force = False,
    config_dir: ConfigDirs = None,
    engine: EngineVersion = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
    trust_engine: TrustEngine = False,
) -> None:
    """Find the fastest steps, topk and draft tokens with few engine starts."""
    if trust_engine:
        trust_all()
    from speclaunch.cli import tuning  # a completion of options needs nothing of it

    words = tuning.TuneWords(
        overrides=tuple(overrides),
        objective=objective,
        workload=workload,
        starts=starts,
        minutes=minutes,
        verify=verify,
        verify_starts=verify_starts,
        draft_tokens=draft_tokens,
        rounds=rounds,
        requests=requests,
        output_tokens=output_tokens,
        input_tokens=input_tokens,
        write=write,
        output_file=output_file,
        adaptive_config=adaptive_config,
        dry_run=dry_run,
        fresh=fresh,
        overwrite=overwrite,
        force=force,
        config_dirs=tuple(config_dir or ()),
        engine=engine,
        hardware=hardware,
        models=tuple(models or ()),
        output_format=output_format,
    )
    raise typer.Exit(tuning.run_tune(words))
