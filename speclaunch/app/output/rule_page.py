"""Output of `speclaunch explain`: a rule's page, with the rule's attributes above its text."""

from __future__ import annotations

from speclaunch.checks import FileCode, Rule, page


def explained(rule: Rule | FileCode) -> str:
    """Return the Markdown of a rule or notice: heading, attributes, text."""
    found = page(rule.code)
    facts = "  \n".join(f"**{what}:** {text}" for what, text in _limits(rule))
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
    others = (f"{severity.value} {when}" for severity, when in rule.also.items())
    return "; ".join((rule.severity.value, *others))


def versions_of(rule: Rule) -> str:
    """Return the engine versions of a rule, lower bounds first: specifier sets are unordered."""
    parts = [part for part in rule.versions.split(",") if part]
    return ", ".join(sorted(parts, key=lambda part: (part[0] != ">", part)))
