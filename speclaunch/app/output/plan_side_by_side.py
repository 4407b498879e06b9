"""Plans side by side on a terminal: a comparison of two, and the roles of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console

from speclaunch.app.output import formatting
from speclaunch.app.output.findings import bugs_across, render, show_findings
from speclaunch.app.output.plan_memory import show_budget
from speclaunch.app.output.plan_text import place, show_unknown, summary, why
from speclaunch.app.output.terminal import LineWriter, TableCell
from speclaunch.checks import Finding
from speclaunch.engine import (
    ArgumentOutcome,
    BudgetNumber,
    EffectiveArgument,
    MemoryUse,
    PlanDifference,
)
from speclaunch.measure import DeploymentPlan, PlanComparison, RolePlan

_ARROW = "\N{RIGHTWARDS ARROW}"


def show_comparison(console: Console, found: PlanComparison, *, everything: bool = False) -> None:
    """Print changes in arguments, findings, memory and command, and the summary of both plans."""
    paper = LineWriter(console)
    paper.line((found.title, "bold"))
    for hardware in dict.fromkeys(map(place, (found.before, found.after))):
        paper.say(f"for {hardware}", "dim")
    for note in dict.fromkeys((found.before.hardware_note, found.after.hardware_note)):
        if note:
            paper.say(note, mark="note: ")
    unknown = (*found.before.plan.facts.unknown, *found.after.plan.facts.unknown)
    show_unknown(paper, dict.fromkeys(unknown))
    if found.same:
        paper.line()
        paper.line(("no changes", "bold green"))
    _show_arguments(paper, found, everything=everything)
    _show_findings(paper, found)
    _show_budget(paper, found)
    _show_command(paper, found.command)
    paper.console.print()
    for planned in (found.before, found.after):
        text, style = summary(planned)
        differs = found.before.hardware != found.after.hardware
        paper.say(f"{text} ({place(planned)})" if differs else text, style)


def _show_arguments(paper: LineWriter, found: PlanComparison, *, everything: bool) -> None:
    shown = (*found.telling, *found.idle) if everything else found.telling
    weighty = [difference for difference in shown if not difference.is_default]
    defaults = [difference for difference in shown if difference.is_default]
    if weighty:
        paper.heading("Arguments", formatting.many(len(weighty), "difference"))
        _list_arguments(paper, found.names, weighty)
    if defaults:
        paper.heading("Defaults of unset arguments", str(len(defaults)))
        for difference in defaults:
            text = f"{cell(difference.before)} {_ARROW} {cell(difference.after)}"
            paper.say(f"{names_of(difference)}: {text}", "dim", indent=2)
    if found.renamed:
        names = "; ".join(names_of(difference) for difference in found.renamed)
        paper.line()
        paper.say(f"renamed, value unchanged: {names}", "dim")
    if found.idle and not everything:
        number = formatting.many(len(found.idle), "more difference")
        paper.line()
        paper.say(f"{number} in unused features (use --all)", "dim")


def _list_arguments(
    paper: LineWriter, names: tuple[str, str], found: Sequence[PlanDifference]
) -> None:
    if paper.narrow:
        for difference in found:
            paper.line("  ", (names_of(difference), "bold"))
            paper.say(
                f"{cell(difference.before)} {_ARROW} {cell(difference.after)}",
                _style(difference),
                indent=4,
            )
            for sentence in reasons(difference, names):
                paper.say(sentence, "dim", indent=4)
        return
    rows = [[TableCell(head, "dim") for head in ("argument", *names, "why")]]
    for difference in found:
        text = "; ".join(reasons(difference, names))
        after = TableCell(cell(difference.after), _style(difference))
        values = [TableCell(names_of(difference)), TableCell(cell(difference.before)), after]
        rows.append([*values, TableCell(text, "dim")])
    paper.table(rows, (34, 24, 26))


def names_of(difference: PlanDifference) -> str:
    """Return the argument's name; both names if they differ."""
    if difference.name_differs and difference.before is not None and difference.after is not None:
        return f"{difference.before.version_name} {_ARROW} {difference.after.version_name}"
    row = difference.after or difference.before
    return row.version_name if row is not None else difference.name


def cell(row: EffectiveArgument | None) -> str:
    """Return an argument's effective value as text, or `(no such argument)` for None."""
    return "(no such argument)" if row is None else formatting.effective(row)


def reasons(difference: PlanDifference, names: tuple[str, str]) -> list[str]:
    """Return the reason for each value; only one if the reasons are equal."""
    texts = [why(row) for row in (difference.before, difference.after) if row is not None]
    if len(set(texts)) <= 1:
        return texts[:1]
    return [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]


def _style(difference: PlanDifference) -> str:
    if difference.after is not None and difference.after.silent:
        return "bold white on red"
    if difference.after is not None and difference.after.outcome is ArgumentOutcome.UNKNOWN:
        return "magenta"
    return "bold"


def _show_findings(paper: LineWriter, found: PlanComparison) -> None:
    _list_findings(paper, "Findings gained", found.gained)
    _list_findings(paper, "Findings lost", found.lost)
    bugs = bugs_across(found.before.findings, found.after.findings)
    if bugs is not None:
        paper.say(bugs, "bold")


def _list_findings(paper: LineWriter, title: str, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    paper.heading(title, str(len(findings)))
    for finding in findings:
        paper.text(render(finding).drawn())


def _show_budget(paper: LineWriter, found: PlanComparison) -> None:
    numbers = [row for row in found.budget if row.is_known]
    if not numbers:
        return
    paper.heading("Memory")
    if paper.narrow:
        for row in numbers:
            _stacked_number(paper, row)
        return
    rows = [[TableCell(head, "dim") for head in ("", *found.names, "change")]]
    for row in numbers:
        style = "bold" if row.differs else "dim"
        texts = (amount(row, row.before), amount(row, row.after), change(row))
        rows.append([TableCell(row.name), *(TableCell(text, style) for text in texts)])
    paper.table(rows, (28, 20, 20))


def _stacked_number(paper: LineWriter, row: BudgetNumber) -> None:
    before, after, by = amount(row, row.before), amount(row, row.after), change(row)
    text = f"{before} {_ARROW} {after}" if row.differs else after
    by = f" ({by})" if by and row.unit else ""
    paper.say(f"{row.name}: {text}{by}", "bold" if row.differs else "dim", indent=2)


def amount(row: BudgetNumber, number: int | float | str | None) -> str:
    """Return one of the two compared numbers as text."""
    if number is None:
        return "unknown" if row.unit else ""
    if isinstance(number, str):
        return number
    if row.unit == "bytes":
        return formatting.size(int(number))
    return formatting.number(number)


def change(row: BudgetNumber) -> str:
    """Return the amount of change as text; empty if zero or unknown."""
    if isinstance(row.before, str) or isinstance(row.after, str):
        return "changes" if row.differs else ""
    if row.before is None or row.after is None or not row.differs:
        return ""
    by = row.after - row.before
    sign = "+" if by > 0 else "\N{MINUS SIGN}"
    if row.unit == "bytes":
        return f"{sign}{formatting.size(int(abs(by)))}"
    part = f" ({sign}{formatting.percent(abs(by) / row.before)})" if row.before else ""
    shown = formatting.number(abs(by)) if isinstance(by, int) else f"{abs(by):.3g}"
    return f"{sign}{shown}{part if row.unit != 'fraction' else ''}"


def _show_command(paper: LineWriter, lines: Sequence[str]) -> None:
    if not lines:
        return
    paper.heading("Command")
    for line in lines:
        paper.line("  ", (line, "green" if line.startswith("+") else "red"))


_UNKNOWN = "unknown"


def show_roles(console: Console, found: DeploymentPlan) -> None:
    """Print the roles, their differences, memory by role and rank, and all findings."""
    paper = LineWriter(console)
    paper.line((found.name, "bold"), f" on SGLang {found.version}: {totals(found)}")
    for note in dict.fromkeys(role.planned.hardware_note for role in found.roles):
        if note:
            paper.say(note, mark="note: ")
    unknown = (fact for role in found.roles for fact in role.planned.plan.facts.unknown)
    show_unknown(paper, dict.fromkeys(unknown))
    names = [role.role for role in found.roles]
    paper.heading("Roles")
    _table(paper, ["", *names], [[title, *cells] for title, cells in rows(found)])
    differing = differences(found)
    if differing:
        paper.heading("Arguments that differ", formatting.many(len(differing), "argument"))
        _table(paper, ["argument", *names], differing)
    for role in found.roles:
        paper.heading(f"Memory per GPU: {role.role}")
        show_budget(paper, role.planned.budget, None)
    paper.heading("Findings across roles")
    if not found.findings:
        paper.say("no findings", "green", indent=2)
    show_findings(console, found.findings, ())
    for role in found.roles:
        paper.heading(f"Findings: {role.role}")
        if not role.planned.findings:
            paper.say("no findings", "green", indent=2)
        show_findings(console, role.planned.findings, role.planned.skipped)
    console.print()
    for role in found.roles:
        paper.say(*summary(role.planned))
    paper.say(f"details and command of a role: --role {names[0]}", "dim")


def totals(found: DeploymentPlan) -> str:
    """Return the total servers, hosts and GPUs as text."""
    servers = formatting.many(found.servers, "server")
    rest = (
        f"an unknown number of {noun}s" if count is None else formatting.many(count, noun)
        for count, noun in ((found.hosts, "host"), (found.gpus, "GPU"))
    )
    return ", ".join([servers, *rest])


def differences(found: DeploymentPlan) -> list[list[str]]:
    """Return a row per argument that differs: its name, then its value in each role."""
    return [
        [_flag(some) or name, *("not set" if row is None else cell(row) for row in some)]
        for name, some in found.differing()
    ]


def rows(found: DeploymentPlan) -> list[tuple[str, list[str]]]:
    """Return the rows that compare the roles, each with a title and a value per role."""
    return [(title, [tell(role) for role in found.roles]) for title, tell in _ROWS]


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _speculation(role: RolePlan) -> str:
    algorithm = (row for row in role.planned.rows if row.name == "speculative_algorithm")
    return cell(next(algorithm, None))


def _sizes(role: RolePlan, *kinds: MemoryUse) -> str:
    """Return the memory of the uses `kinds` as text, with each distinct size once."""
    found = dict.fromkeys(
        formatting.size(sum(share.size.bytes for share in rank.shares if share.use in kinds))
        for rank in role.planned.budget.ranks
    )
    return " / ".join(found) or _UNKNOWN


_ROWS: tuple[tuple[str, Callable[[RolePlan], str]], ...] = (
    ("servers", lambda role: str(role.replicas)),
    ("hosts per server", lambda role: _number(role.hosts)),
    ("GPUs per host", lambda role: _number(role.gpus_of_a_host)),
    ("hardware per host", lambda role: place(role.planned)),
    ("speculation", _speculation),
    ("memory", lambda role: role.planned.budget.fit.value),
    (
        "weights per GPU",
        lambda role: _sizes(role, MemoryUse.TARGET_WEIGHTS, MemoryUse.DRAFT_WEIGHTS),
    ),
    ("KV cache per GPU", lambda role: _sizes(role, MemoryUse.TARGET_KV, MemoryUse.DRAFT_KV)),
    ("KV tokens", lambda role: _number(role.planned.budget.tokens)),
    ("running requests", lambda role: _number(role.planned.budget.running_requests)),
)


def _flag(some: tuple[EffectiveArgument | None, ...]) -> str:
    return next((row.version_name for row in some if row is not None), "")


def _table(paper: LineWriter, head: list[str], lines: list[list[str]]) -> None:
    cells = [[TableCell(title, "dim") for title in head]]
    cells += [
        [TableCell(line[0]), *(TableCell(text, "bold") for text in line[1:])] for line in lines
    ]
    paper.table(cells, (34, *[26] * (len(head) - 2)))
