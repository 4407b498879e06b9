"""Writes what is made of the rules: their table, speclaunch/rules/table.py, and the list of them,
docs/rules/README.md. The rules' pages are written by hand.

python tools/rule_pages.py            writes
python tools/rule_pages.py --check    exits 1 when one of them is old
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from packaging.specifiers import SpecifierSet

from speclaunch.lint.file_codes import FILE_CODES
from speclaunch.report.rule_page import versions_of
from speclaunch.rules import ELSEWHERE, FAMILIES
from speclaunch.rules.interface import Rule
from speclaunch.rules.rule_files import rule_files

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "docs" / "rules" / "README.md"
TABLE = ROOT / "speclaunch" / "rules" / "table.py"
TABLE_HEAD = '''\
"""All rules in the order of their codes: made by `tools/rule_pages.py` from their modules.

So that only the modules are imported whose rules can apply, and none to list them. A row: code,
name, severity, module, engine versions, algorithms, whether it looks across deployments, other
severities with when, how the engine's messages begin that it foretells.
"""

from __future__ import annotations

Row = tuple[
    str, str, str, str, str, tuple[str, ...], bool, tuple[tuple[str, str], ...], tuple[str, ...]
]

# ruff: noqa: E501
# fmt: off
ROWS: tuple[Row, ...] = (
'''


def rules() -> list[tuple[str, Rule]]:
    """Every rule with its module, read from the modules, in the order of the codes."""
    found = [(file.short, rule) for file in rule_files() for rule in file.rules()]
    return sorted(found, key=lambda pair: pair[1].code)


def table() -> str:
    """The source of the table."""
    return TABLE_HEAD + "".join(f"    {_row(*pair)},\n" for pair in rules()) + ")\n"


def _row(module: str, rule: Rule) -> str:
    versions = str(SpecifierSet(rule.versions))
    also = tuple((severity.value, when) for severity, when in rule.also.items())
    fields = (rule.code, rule.name, rule.severity.value, module, versions)
    more = (tuple(sorted(rule.algorithms)), rule.check_across is not None, also, rule.says)
    return repr((*fields, *more))


def index() -> str:
    """The Markdown of the list."""
    rows = [
        (r.code, r.name, r.severity.value, versions_of(r) or "all", r.summary) for _, r in rules()
    ]
    rows += [(n.code, n.name, n.severity.value, "", n.summary) for n in FILE_CODES]
    lines = [
        "# Rules",
        "",
        "Made by `tools/rule_pages.py` from the rules and their pages.",
        "",
        "A code never changes and is never used again. A new rule takes a number of its family:",
        "",
        "| Family | Numbers | What it is about |",
        "|---|---|---|",
        *(
            f"| `{name}` | {numbers[0]:03}-{numbers[-1]:03} | {_topic(name)} |"
            for name, numbers in FAMILIES.items()
        ),
        "",
        _older(),
        "",
        "| Code | Name | Severity | Engine versions | |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| [{code}]({code}.md) | {name} | {severity} | {versions} | {summary} |"
        for code, name, severity, versions, summary in sorted(rows)
    ]
    return "\n".join(lines) + "\n"


def _topic(family: str) -> str:
    doc = import_module(f"speclaunch.rules.{family}").__doc__ or ""
    return doc.strip().rstrip(".")


def _older() -> str:
    listed = ", ".join(f"{code} (`{family}`)" for code, family in ELSEWHERE.items())
    return f"Older than these numbers: {listed}. 000, 016 and 090-099 are lint's own."


def main() -> int:
    """Write, or check."""
    made = {INDEX: index(), TABLE: table()}
    if "--check" not in sys.argv[1:]:
        for path, text in made.items():
            path.write_text(text, encoding="utf-8")
        return 0
    old = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    if old:
        print(f"old: {', '.join(old)}")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
