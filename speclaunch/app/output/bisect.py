"""Terminal output of `bisect`."""

from __future__ import annotations

from rich.console import Console

from speclaunch.app.output.plan import formatting
from speclaunch.app.output.plan.terminal_lines import LineWriter, TableCell
from speclaunch.app.output.styled import many
from speclaunch.measure import BisectDocument, DependencyRecord, SearchOutcome, ValueRecord


def show_bisect(console: Console, found: BisectDocument) -> None:
    """Print the pair of releases, the checks that support it, and the differences between them."""
    paper = LineWriter(console)
    style = "bold green" if found.outcome is SearchOutcome.FOUND else "bold red"
    paper.say(_headline(found), style)
    rows = [[TableCell(head, "dim") for head in ("release", "verdict", "seconds", "why")]]
    for probe in found.probes:
        texts = (probe.release, probe.verdict.value, f"{probe.seconds:.0f}", probe.reason)
        rows.append([TableCell(text) for text in texts])
    paper.heading("Probes", many(found.starts, "start"))
    paper.table(rows, (16, 8, 8))
    if found.flaky:
        paper.say(f"flaky, with contradicting results: {', '.join(found.flaky)}", "bold yellow")
    changes, pair = found.changes, found.pair
    if changes is not None and pair is not None:
        if changes.command:
            paper.heading("Command")
            for line in changes.command:
                paper.line("  ", (line, "green" if line.startswith("+") else "red"))
        if changes.values:
            paper.heading("Arguments", many(len(changes.values), "difference"))
            for value in changes.values:
                paper.say(_value(value), indent=2)
        bugs = [("fixes", bug) for bug in changes.fixed]
        bugs += [("introduces", bug) for bug in changes.introduced]
        if bugs:
            paper.heading("Known engine bugs", f"of SGLang {pair.bad}, against {pair.good}")
            for verb, bug in bugs:
                unknown = f" (unknown: {bug.unknown})" if bug.unknown else ""
                paper.say(f"{verb} {bug.id}: {bug.summary}{unknown}", indent=2)
    if found.dependencies:
        paper.heading("Packages", many(len(found.dependencies), "difference"))
        for package in found.dependencies:
            paper.say(_package(package), indent=2)


def _headline(found: BisectDocument) -> str:
    about = f"{found.recipe}: {found.check}: "
    if found.outcome is SearchOutcome.GOOD_IS_BAD:
        return f"{about}not isolated: SGLang {found.good} (--good) is bad, too"
    if found.outcome is SearchOutcome.BAD_IS_GOOD:
        return f"{about}not isolated: SGLang {found.bad} (--bad) is good"
    if found.pair is None:
        return f"{about}not isolated: the probes contradict each other"
    if found.outcome is SearchOutcome.FOUND:
        return f"{about}good in SGLang {found.pair.good}, bad in {found.pair.bad}"
    untested = ", ".join(found.untested)
    return (
        f"{about}not isolated: the first bad release is between {found.pair.good} and "
        f"{found.pair.bad}; not tested: {untested}"
    )


def _value(value: ValueRecord) -> str:
    if value.unknown:
        return f"{value.name}: unknown"
    before, after = map(formatting.value, (value.before, value.after))
    return f"{value.name}: {before} → {after} ({value.why})"


def _package(package: DependencyRecord) -> str:
    parts = []
    for what, before, after in (
        ("requires", package.good_requires, package.bad_requires),
        ("installed", package.good_installed, package.bad_installed),
    ):
        if before != after:
            parts.append(f"{what} {before or 'none'} → {after or 'none'}")
    return f"{package.name}: {'; '.join(parts)}"
