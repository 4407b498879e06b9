"""What `speclaunch explain` shows: a rule's page, and above its text what the rule knows."""

from __future__ import annotations

from speclaunch.checks import FileCode, Rule, page


def explained(rule: Rule | FileCode) -> str:
    """The Markdown of a rule or notice: its heading, its limits, its text."""
    found = page(rule.code)
    facts = "  \n".join(f"**{what}:** {said}" for what, said in _limits(rule))
    return f"# {found.title}\n\n{found.summary}.\n\n{facts}\n\n{found.body}"


def _limits(rule: Rule | FileCode) -> tuple[tuple[str, str], ...]:
    if isinstance(rule, FileCode):
        return (("Severity", rule.severity.value),)
    return (
        ("Severity", _severities(rule)),
        ("Algorithms", ", ".join(sorted(rule.algorithms)) or "any"),
        ("Engine versions", f"`{versions_of(rule)}`" if rule.versions else "all"),
    )


def _severities(rule: Rule) -> str:
    """`error; warning in 0.5.3`."""
    others = (f"{severity.value} {when}" for severity, when in rule.also.items())
    return "; ".join((rule.severity.value, *others))


def versions_of(rule: Rule) -> str:
    """Its engine versions, lower bounds first: a specifier set has no order of its own."""
    parts = [part for part in rule.versions.split(",") if part]
    return ", ".join(sorted(parts, key=lambda part: (part[0] != ">", part)))
