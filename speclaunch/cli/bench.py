"""`speclaunch bench`: whether speculation pays, measured."""

from __future__ import annotations

from typing import Annotated

import typer

from speclaunch.bench.load import Generators
from speclaunch.cli.formats import CertificateFormat
from speclaunch.cli.load_options import InputTokens, OutputTokens, Requests
from speclaunch.cli.options import (
    ConfigDirs,
    EngineVersion,
    HardwareName,
    ModelDirs,
    Overrides,
    TrustEngine,
)
from speclaunch.facts.trusted_programs import trust_all

OutputFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        "--output-file",
        metavar="[FORMAT=]FILE",
        help="Write it into a file as well; without FORMAT its suffix decides. Repeatable.",
    ),
]


def bench(
    overrides: Overrides = None,  # type: ignore[assignment]  # with --url there is none
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Measure a server that runs already, instead of a recipe; it is left as it is.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="BASELINE",
            help="What to compare with: `none` (the same without speculation, the default of a "
            "recipe), `recipe=NAME [key=value]…`, `engine=VERSION`, or `url=URL`.",
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="NAME|FILE",
            help="Prompts: code, chat, extraction, repetition, random, or a file (JSONL, "
            "or ShareGPT's). Repeatable. Default: chat.",
        ),
    ] = None,
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests at a time, for example 1,8,32.")
    ] = "1,8",
    context: Annotated[
        str,
        typer.Option(
            "--context",
            metavar="TOKENS",
            help="Lengths of the prompts in tokens, for example 0,2000,8000; 0: as they are.",
        ),
    ] = "0",
    goodput: Annotated[
        str | None,
        typer.Option(
            "--goodput",
            metavar="METRIC=MS,…",
            help="Also count the requests a second within these bounds in milliseconds, for "
            "example ttft=500,tpot=50,e2el=4000.",
        ),
    ] = None,
    generator: Annotated[
        Generators,
        typer.Option(
            "--generator",
            help="What makes the load: SGLang's own generator, or aiperf. auto: SGLang's, where "
            "this machine has it.",
        ),
    ] = Generators.AUTO,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="PATH",
            help="The tokenizer of a running server's model, where this machine does not have it "
            "under the path that the server names.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=3, max=1000, help="Rounds of each side.")
    ] = 6,
    requests: Requests = 8,
    output_tokens: OutputTokens = 128,
    input_tokens: InputTokens = 512,
    blocks: Annotated[
        int | None,
        typer.Option(
            "--blocks",
            min=0,
            help="Blocks of rounds of each side, one engine at a time; 0: both engines are up at "
            "once. Default: 0 on a CPU, else 2 (1 a start with --starts).",
        ),
    ] = None,
    starts: Annotated[
        int,
        typer.Option(
            "--starts",
            min=1,
            max=100,
            help="Start each side so often; from 3 on the intervals hold what differs from start "
            "to start.",
        ),
    ] = 1,
    fail_under: Annotated[
        float | None,
        typer.Option(
            "--fail-under",
            metavar="RATIO",
            help="Exit 1 unless every interval lies above this speed-up.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the starts and rounds; start nothing.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Begin again, instead of going on with an interrupted comparison."
        ),
    ] = False,
    config_dir: ConfigDirs = None,
    engine: EngineVersion = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    output_format: Annotated[
        CertificateFormat, typer.Option("--output-format", help="Output format.")
    ] = CertificateFormat.TEXT,
    output_file: OutputFiles = None,
    trust_engine: TrustEngine = False,
) -> None:
    """Measure whether speculation pays: two deployments, interleaved, with a confidence interval."""  # noqa: E501
    if trust_engine:
        trust_all()
    from speclaunch.cli import benching  # a completion of options needs nothing of it
    from speclaunch.cli.bench_output import output

    words = benching.BenchWords(
        overrides=tuple(overrides or ()),
        url=url,
        tokenizer=tokenizer,
        against=against,
        workloads=tuple(workload or ("chat",)),
        concurrency=concurrency,
        context=context,
        goodput=goodput,
        generator=generator,
        rounds=rounds,
        requests=requests,
        output_tokens=output_tokens,
        input_tokens=input_tokens,
        blocks=blocks,
        starts=starts,
        fail_under=fail_under,
        dry_run=dry_run,
        fresh=fresh,
        config_dirs=tuple(config_dir or ()),
        engine=engine,
        hardware=hardware,
        models=tuple(models or ()),
        output=output(output_format, output_file or ()),
    )
    raise typer.Exit(benching.run_bench(words))
