"""`speclaunch plan`: what the engine would really run with, whether it fits, and the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.asking.at_hand import asker_for
from speclaunch.asking.mode import ask_mode
from speclaunch.cli.check_options import asks, chosen_rules, lookup
from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.options import (
    AskEngine,
    Assume,
    ConfigDirs,
    EngineVersions,
    HardwareName,
    Ignore,
    ModelDirs,
    Online,
    RoleName,
    Select,
    TrustEngine,
)
from speclaunch.cli.own_title import hide_secrets
from speclaunch.errors import InputError, Problem
from speclaunch.facts.trusted_programs import trust_all
from speclaunch.planning.comparison import Comparison, compared_in_turn
from speclaunch.planning.plan_requests import (
    exit_code,
    planned_side,
    roles_exit_code,
    sides,
    unanswered,
    wish,
    with_roles,
)
from speclaunch.planning.planned_deployment import PlannedDeployment
from speclaunch.planning.role_plans import DeploymentPlan, plans_of_roles
from speclaunch.report.console import err, out


def plan(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE [RECIPE] [key=value]…",
            help="The recipe (`recipe=NAME`, `NAME` or a path) and Hydra overrides. With several "
            "recipes, plan shows their differences. An override applies to the recipe before "
            "it; before all recipes, to all.",
        ),
    ],
    config_dir: ConfigDirs = None,
    role: RoleName = None,
    engine: EngineVersions = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    select: Select = None,
    ignore: Ignore = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show each value with its reason, and the memory bar.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="As --full, with arguments at their defaults as well."),
    ] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="Propose the settings that fit with the least loss.")
    ] = False,
    best: Annotated[
        bool,
        typer.Option("--best", help="Recommend settings for --requests of --context tokens."),
    ] = False,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            metavar="N",
            min=1,
            max=65536,
            help="For --best: concurrent requests. Default: 32.",
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            metavar="L",
            min=1,
            max=1 << 24,
            help="For --best: tokens of each request, prompt and output. Default: 4096.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the plan as an HTML page as well."),
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
    ask: AskEngine = None,
    trust_engine: TrustEngine = False,
) -> None:
    """Show the effective settings and their reasons, whether they fit into memory, the command.

    Nothing is started. Two recipes, or two versions (`--engine 0.5.12,0.5.23`), are compared.
    """
    if trust_engine:
        trust_all()
    rules = chosen_rules(select, ignore)
    found = lookup(models, hardware, online=online, assume=assume)
    whole = None if role is not None else with_roles(words, engine, config_dir or [])
    if whole is not None:
        _require_plain(fit=fit, best=best)
        hide_secrets("plan", words)
        shown = plans_of_roles(whole, engine, found, rules)
        _show_roles(shown, html, output_format)
        raise typer.Exit(roles_exit_code(shown, strict=strict))
    asked = sides(words, engine, config_dir or [], role)
    if fit and len(asked) > 1:
        raise InputError(Problem("--fit takes one recipe and one version"))
    load = wish(best, requests, context, fit=fit, several=len(asked) > 1)
    hide_secrets("plan", words)
    asker = asker_for(ask_mode(ask)) if asks(select, ignore) else None
    plans = [planned_side(side, found, rules, fit=fit, wish=load, asker=asker) for side in asked]
    comparisons = compared_in_turn(plans)
    if html is not None:
        _write_page(html, plans, comparisons)
    if output_format is OutputFormat.JSON:
        _print_json(plans, comparisons)
    else:
        _show(plans, comparisons, full=full, everything=everything)
    code = exit_code(plans, strict=strict)
    if plans[0].unanswered is not None:
        raise unanswered("--fit" if fit else "--best", plans[0], code)
    raise typer.Exit(code)


def _require_plain(*, fit: bool, best: bool) -> None:
    for name, is_asked in (("--fit", fit), ("--best", best)):
        if is_asked:
            raise InputError(Problem(f"{name} takes one role", help="name it: --role NAME"))


def _show_roles(found: DeploymentPlan, html: Path | None, output_format: OutputFormat) -> None:
    if html is not None:
        from speclaunch.report.plan.page import roles_page

        _write_text(html, roles_page(found))
    if output_format is OutputFormat.JSON:
        from speclaunch.report.plan.document import roles_document

        typer.echo(roles_document(found))
        return
    from speclaunch.report.plan.roles_text import show_roles

    show_roles(out(), found)


def _show(
    plans: Sequence[PlannedDeployment],
    comparisons: Sequence[Comparison],
    *,
    full: bool,
    everything: bool,
) -> None:
    if not comparisons:
        from speclaunch.report.plan.text import show_brief, show_plan

        if full or everything:
            show_plan(out(), plans[0], everything=everything)
        else:
            show_brief(out(), plans[0])
        return
    from speclaunch.report.plan.comparison_text import show_comparison

    for number, comparison in enumerate(comparisons):
        if number:
            out().print()
        show_comparison(out(), comparison, everything=everything)


def _print_json(plans: Sequence[PlannedDeployment], comparisons: Sequence[Comparison]) -> None:
    from speclaunch.report.plan.document import comparison_document, plan_document

    if comparisons:
        typer.echo(comparison_document(plans, comparisons))
    else:
        typer.echo(plan_document(plans[0]))


def _write_page(
    path: Path, plans: Sequence[PlannedDeployment], comparisons: Sequence[Comparison]
) -> None:
    from speclaunch.report.plan.page import comparison_page, plan_page

    _write_text(path, comparison_page(comparisons) if comparisons else plan_page(plans[0]))


def _write_text(path: Path, text: str) -> None:
    from speclaunch.fix.edits import write_atomically
    from speclaunch.redaction import redact

    if path.is_dir() or not path.name or (path.exists() and not path.is_file()):
        raise InputError(Problem(f"cannot write {path}: it is not a regular file"))
    if not path.parent.is_dir():
        raise InputError(Problem(f"cannot write {path}: {path.parent} is not a directory"))
    write_atomically(path.resolve(), redact(text))
    err().print(f"wrote {path}", markup=False)
