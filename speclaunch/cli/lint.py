"""`speclaunch lint`: recipes, scripts, compose and Kubernetes files, checked without starting."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.formats import LintFormat
from speclaunch.cli.linting import LintWords, check_files
from speclaunch.cli.options import (
    AskEngine,
    Assume,
    ConfigDirs,
    EngineVersions,
    HardwareName,
    Ignore,
    ModelDirs,
    Online,
    Select,
    TrustEngine,
)


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATHS",
            help="Files or directories; `-` reads standard input. Default: the current directory.",
        ),
    ] = None,
    config_dir: ConfigDirs = None,
    engine: EngineVersions = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    select: Select = None,
    ignore: Ignore = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    info: Annotated[
        bool,
        typer.Option(
            "--info", help="Show info findings, skipped rules and the sources of checkpoints."
        ),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Check all files, also those that did not change.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that check. Default: more than one for many files."),
    ] = None,
    output_format: Annotated[
        LintFormat | None,
        typer.Option(
            "--output-format",
            help="Output format. Default: text; in GitHub Actions annotations beside it.",
        ),
    ] = None,
    output_file: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            "--output-file",
            metavar="[FORMAT=]FILE",
            help="Write a file, too: `sarif=lint.sarif`; without FORMAT its suffix decides. "
            "Repeatable.",
        ),
    ] = None,
    exit_zero: Annotated[
        bool | None,
        typer.Option(
            "--exit-zero/--no-exit-zero",
            help="Exit with 0 when there are findings. Default: only with the format sarif.",
        ),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Apply the safe fixes.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Apply all fixes, the unsafe ones, too.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what the fixes would change; write nothing.")
    ] = False,
    only_deployments: Annotated[
        bool,
        typer.Option(
            "--only-deployments",
            help="Skip named files without a deployment; exit with 0 when none is left.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The file that configures: default is the nearest speclaunch.toml or "
            "pyproject.toml of each linted file.",
        ),
    ] = None,
    no_config: Annotated[
        bool, typer.Option("--no-config", help="Read no speclaunch.toml and no pyproject.toml.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="PATTERN",
            help="Leave out what this matches below a directory, as in .gitignore. Repeatable.",
        ),
    ] = None,
    no_gitignore: Annotated[
        bool, typer.Option("--no-gitignore", help="Check also what Git ignores.")
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Leave out the findings in this file."),
    ] = None,
    write_baseline: Annotated[
        Path | None,
        typer.Option(
            "--write-baseline",
            metavar="FILE",
            help="Write what is found into this file, so that it is known from now on.",
        ),
    ] = None,
    ask: AskEngine = None,
    trust_engine: TrustEngine = False,
) -> None:
    """Check deployments in files against the rules, for one or more engine versions."""
    asked = LintWords(
        tuple(paths or ()),
        tuple(config_dir or ()),
        engine,
        hardware,
        tuple(models or ()),
        online,
        tuple(assume or ()),
        tuple(select or ()),
        tuple(ignore or ()),
        strict,
        info,
        no_cache,
        jobs,
        output_format,
        tuple(output_file or ()),
        exit_zero,
        fix,
        unsafe_fixes,
        diff,
        only_deployments,
        config,
        no_config,
        tuple(exclude or ()),
        no_gitignore,
        baseline,
        write_baseline,
        ask,
        trust_engine,
    )
    raise typer.Exit(check_files(asked))
