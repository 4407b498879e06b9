"""What `explain` and `rules` show: from the table of rules and their pages."""

from __future__ import annotations

import sys
from typing import Any

from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem
from speclaunch.lint.file_codes import FILE_CODES
from speclaunch.report.console import is_drawn, out
from speclaunch.report.rule_page import explained
from speclaunch.rules.registry import all_rules, by_code


def explain_code(code: str) -> None:
    """Print the page of a rule or a notice, by its code or name. Raises InputError."""
    rule = by_code(code)
    notice = next((n for n in FILE_CODES if code.strip().lower() in (n.code.lower(), n.name)), None)
    found = rule or notice
    if found is None:
        known = [one["code"] for one in listed()] + [one["name"] for one in listed()]
        near = suggest(code.strip().upper(), known) or suggest(code.strip().lower(), known)
        raise InputError(
            Problem(f"unknown rule {code!r}", help=near or "`speclaunch rules` lists them")
        )
    text = explained(found)
    if is_drawn(sys.stdout):
        from rich.markdown import Markdown

        out().print(Markdown(text))
    else:
        sys.stdout.write(text)


def listed() -> list[dict[str, Any]]:
    """Every rule and notice in the order of their codes, with the summary of its page."""
    listed: list[dict[str, Any]] = [
        {
            "code": rule.code,
            "name": rule.name,
            "severity": rule.severity.value,
            "also": {severity.value: when for severity, when in rule.also.items()},
            "versions": str(rule.versions),
            "summary": rule.summary,
        }
        for rule in all_rules()
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
    return sorted(listed, key=lambda one: one["code"])
