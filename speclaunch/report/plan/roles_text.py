"""The plans of several roles on a terminal, side by side."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from speclaunch.plan.budget import MemoryUse, RankBudget
from speclaunch.plan.effective_arguments import EffectiveArgument
from speclaunch.planning.plan_requests import DeploymentPlan, RolePlan
from speclaunch.report.findings import show_findings
from speclaunch.report.plan import formatting
from speclaunch.report.plan.comparison_text import cell
from speclaunch.report.plan.memory_text import show_budget
from speclaunch.report.plan.terminal_lines import LineWriter, TableCell
from speclaunch.report.plan.text import place, summary

_UNKNOWN = "unknown"


def show_roles(console: Console, found: DeploymentPlan) -> None:
    """What each role is and needs, what differs, memory by role and rank, and every finding."""
    paper = LineWriter(console)
    paper.line((found.name, "bold"), f" on SGLang {found.version}: {totals(found)}")
    for note in dict.fromkeys(one.planned.hardware_note for one in found.roles):
        if note:
            paper.say(note, mark="note: ")
    unknown = (fact for one in found.roles for fact in one.planned.plan.facts.unknown)
    for fact in dict.fromkeys(unknown):
        paper.say(f"{fact.what}: {fact.why}{f' ({fact.help})' if fact.help else ''}", mark="? ")
    names = [one.role for one in found.roles]
    paper.heading("Roles")
    _table(paper, ["", *names], [[title, *cells] for title, cells in rows(found)])
    differing = differences(found)
    if differing:
        paper.heading("Arguments that differ", formatting.many(len(differing), "argument"))
        _table(paper, ["argument", *names], differing)
    for one in found.roles:
        paper.heading(f"Memory of a GPU: {one.role}")
        show_budget(paper, one.planned.budget, None)
    paper.heading("Findings about roles together")
    if not found.findings:
        paper.say("no findings", "green", indent=2)
    show_findings(console, found.findings, ())
    for one in found.roles:
        paper.heading(f"Findings: {one.role}")
        if not one.planned.findings:
            paper.say("no findings", "green", indent=2)
        show_findings(console, one.planned.findings, one.planned.unjudged)
    console.print()
    for one in found.roles:
        paper.say(*summary(one.planned))
    paper.say(f"all of one role, with its command: --role {names[0]}", "dim")


def totals(found: DeploymentPlan) -> str:
    """What all of it needs."""
    servers = formatting.many(found.servers, "server")
    hosts = (
        "an unknown number of hosts"
        if found.hosts is None
        else formatting.many(found.hosts, "host")
    )
    gpus = "an unknown number of GPUs" if found.gpus is None else formatting.many(found.gpus, "GPU")
    return f"{servers}, {hosts}, {gpus}"


def differences(found: DeploymentPlan) -> list[list[str]]:
    """The arguments that differ, each with its value in every role."""
    return [
        [_spelled(some) or name, *("not given" if one is None else cell(one) for one in some)]
        for name, some in found.differing()
    ]


def rows(found: DeploymentPlan) -> list[tuple[str, list[str]]]:
    """What tells the roles from each other: a title, and what each of them has."""
    return [(title, [tell(one) for one in found.roles]) for title, tell in _ROWS]


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _argument(name: str, one: RolePlan) -> str:
    row = next((row for row in one.planned.rows if row.name == name), None)
    return cell(row)


def _weights(one: RolePlan) -> str:
    ranks = one.planned.budget.ranks
    kinds = (MemoryUse.TARGET_WEIGHTS, MemoryUse.DRAFT_WEIGHTS)
    return _sizes(ranks, kinds)


def _pool(one: RolePlan) -> str:
    return _sizes(one.planned.budget.ranks, (MemoryUse.TARGET_KV, MemoryUse.DRAFT_KV))


def _sizes(ranks: tuple[RankBudget, ...], kinds: tuple[MemoryUse, ...]) -> str:
    """What some uses take on each kind of rank."""
    found = dict.fromkeys(
        formatting.size(sum(one.size.bytes for one in rank.shares if one.use in kinds))
        for rank in ranks
    )
    return " / ".join(found) or _UNKNOWN


_ROWS: tuple[tuple[str, Callable[[RolePlan], str]], ...] = (
    ("servers", lambda one: str(one.replicas)),
    ("hosts of a server", lambda one: _number(one.hosts)),
    ("GPUs of a host", lambda one: _number(one.gpus_of_a_host)),
    ("hardware of a host", lambda one: place(one.planned)),
    ("speculation", lambda one: _argument("speculative_algorithm", one)),
    ("memory", lambda one: one.planned.budget.fit.value),
    ("weights on a GPU", _weights),
    ("KV cache on a GPU", _pool),
    ("KV tokens", lambda one: _number(one.planned.budget.tokens)),
    ("running requests", lambda one: _number(one.planned.budget.running_requests)),
)


def _spelled(some: tuple[EffectiveArgument | None, ...]) -> str:
    return next((row.spelling for row in some if row is not None), "")


def _table(paper: LineWriter, head: list[str], lines: list[list[str]]) -> None:
    cells = [[TableCell(one, "dim") for one in head]]
    cells += [[TableCell(line[0]), *(TableCell(one, "bold") for one in line[1:])] for line in lines]
    paper.table(cells, (34, *[26] * (len(head) - 2)))
