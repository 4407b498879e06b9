"""`speclaunch rules` and `speclaunch explain CODE`: the rules and their pages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from speclaunch.app.output.console import err, is_drawn, out
from speclaunch.checks import FILE_CODES, RULES, FileCode, Rule, by_code, page
from speclaunch.core import InputError
from speclaunch.engine import suggest

if TYPE_CHECKING:
    from speclaunch.app.verbs.change_options import ExplainOptions
    from speclaunch.app.verbs.run_options import FormatOptions


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
    """Return a rule's engine versions as text, lower bounds first."""
    parts = [part for part in rule.versions.split(",") if part]
    return ", ".join(sorted(parts, key=lambda part: (part[0] != ">", part)))


def explain(options: ExplainOptions) -> None:
    """Print the page of a rule or a notice. Raises InputError."""
    explain_code(options.code)


def explain_code(code: str) -> None:
    """Print the page of a rule or a notice, by its code or name. Raises InputError."""
    rule = by_code(code)
    notice = next((n for n in FILE_CODES if code.strip().lower() in (n.code.lower(), n.name)), None)
    found = rule or notice
    if found is None:
        known = [rule["code"] for rule in listed()] + [rule["name"] for rule in listed()]
        near = suggest(code.strip().upper(), known) or suggest(code.strip().lower(), known)
        raise InputError(f"unknown rule {code!r}", help=near or "list the rules: speclaunch rules")
    text = explained(found)
    if is_drawn(sys.stdout):
        from rich.markdown import Markdown

        out().print(Markdown(text))
    else:
        sys.stdout.write(text)


def listed() -> list[dict[str, Any]]:
    """Return every rule and notice, sorted by code, with the summary of its page."""
    listed: list[dict[str, Any]] = [
        {
            "code": rule.code,
            "name": rule.name,
            "severity": rule.severity.value,
            "also": {severity.value: when for severity, when in rule.also.items()},
            "versions": str(rule.versions),
            "summary": rule.summary,
        }
        for rule in RULES
    ]
    listed += [
        {
            "code": notice.code,
            "name": notice.name,
            "severity": notice.severity.value,
            "also": {},
            "versions": "",
            "summary": notice.summary,
        }
        for notice in FILE_CODES
    ]
    return sorted(listed, key=lambda rule: rule["code"])


def rules(options: FormatOptions) -> None:
    """List every rule with its code, severity and engine versions."""
    import json

    from speclaunch.app.verbs.options import OutputFormat

    if options.output_format is OutputFormat.JSON:
        document = {"version": 1, "rules": listed()}
        print(json.dumps(document, indent=2, ensure_ascii=False))  # noqa: T201 - the result
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for rule in listed():
        table.add_row(
            Text(rule["code"], "bold"),
            Text(", ".join((rule["severity"], *rule["also"]))),
            Text(rule["versions"] or "all", "dim"),
            Text(rule["summary"]),
        )
    out().print(table)
    err().print("\nspeclaunch explain CODE explains a rule.", style="dim")
