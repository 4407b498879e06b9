"""`speclaunch plan`: effective settings, memory use and command of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from speclaunch.app.output.console import out
from speclaunch.app.verbs.launch_process import hide_secrets
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.shared import asks, chosen_rules, lookup, write_result
from speclaunch.app.verbs.start_options import PlanOptions
from speclaunch.checks import ask_mode, querier_for
from speclaunch.core import ExitCode, InputError
from speclaunch.measure import (
    DeploymentPlan,
    PlanComparison,
    PlannedDeployment,
    compared_in_turn,
    exit_code,
    planned_side,
    plans_of_roles,
    requested_load,
    roles_exit_code,
    sides,
    unanswered,
    with_roles,
)


def plan(options: PlanOptions) -> ExitCode:
    """Show the plan of one or more deployments. Raises InputError."""
    rules = chosen_rules(options.select, options.ignore)
    found = lookup(options.models, options.hardware, online=options.online, assume=options.assume)
    all_roles = (
        None
        if options.role is not None
        else with_roles(options.words, options.engine, options.config_dir)
    )
    if all_roles is not None:
        for name, is_set in (("--fit", options.fit), ("--best", options.best)):
            if is_set:
                raise InputError(f"{name} needs one role", help="select a role: --role NAME")
        hide_secrets("plan", options.words)
        shown = plans_of_roles(all_roles, options.engine, found, rules)
        _show_roles(shown, options.html, options.output_format)
        return roles_exit_code(shown, strict=options.strict)
    chosen = sides(options.words, options.engine, options.config_dir, options.role)
    if options.fit and len(chosen) > 1:
        raise InputError("--fit needs a single recipe and version")
    load = requested_load(
        options.best, options.requests, options.context, fit=options.fit, several=len(chosen) > 1
    )
    hide_secrets("plan", options.words)
    asker = querier_for(ask_mode(options.ask)) if asks(options.select, options.ignore) else None
    plans = [
        planned_side(side, found, rules, fit=options.fit, requested_load=load, asker=asker)
        for side in chosen
    ]
    comparisons = compared_in_turn(plans)
    if options.html is not None:
        from speclaunch.app.output.plan_page import comparison_page, plan_page

        page = comparison_page(comparisons) if comparisons else plan_page(plans[0])
        write_result(options.html, page)
    if options.output_format is OutputFormat.JSON:
        from speclaunch.app.output.plan_document import comparison_document, plan_document

        typer.echo(
            comparison_document(plans, comparisons) if comparisons else plan_document(plans[0])
        )
    else:
        _show(plans, comparisons, full=options.full, everything=options.everything)
    code = exit_code(plans, strict=options.strict)
    if plans[0].unanswered is not None:
        raise unanswered("--fit" if options.fit else "--best", plans[0], code)
    return code


def _show_roles(found: DeploymentPlan, html: Path | None, output_format: OutputFormat) -> None:
    if html is not None:
        from speclaunch.app.output.plan_page import roles_page

        write_result(html, roles_page(found))
    if output_format is OutputFormat.JSON:
        from speclaunch.app.output.plan_document import roles_document

        typer.echo(roles_document(found))
        return
    from speclaunch.app.output.plan_side_by_side import show_roles

    show_roles(out(), found)


def _show(
    plans: Sequence[PlannedDeployment],
    comparisons: Sequence[PlanComparison],
    *,
    full: bool,
    everything: bool,
) -> None:
    if not comparisons:
        from speclaunch.app.output.plan_text import show_brief, show_plan

        if full or everything:
            show_plan(out(), plans[0], everything=everything)
        else:
            show_brief(out(), plans[0])
        return
    from speclaunch.app.output.plan_side_by_side import show_comparison

    for number, comparison in enumerate(comparisons):
        if number:
            out().print()
        show_comparison(out(), comparison, everything=everything)
