"""Write the list of rules, docs/rules/README.md. The rules' pages are written by hand.

python tools/rule_pages.py            writes
python tools/rule_pages.py --check    exits 1 if the list is outdated
"""

from __future__ import annotations

import sys
from pathlib import Path

from speclaunch.lint.file_codes import FILE_CODES
from speclaunch.report.rule_page import versions_of
from speclaunch.rules import ELSEWHERE, FAMILIES
from speclaunch.rules.registry import all_rules

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "docs" / "rules" / "README.md"


def index() -> str:
    """The Markdown of the list."""
    rows = [
        (r.code, r.name, r.severity.value, versions_of(r) or "all", r.summary) for r in all_rules()
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
            f"| `{name}` | {numbers[0]:03}-{numbers[-1]:03} | {topic} |"
            for name, (numbers, topic, _) in FAMILIES.items()
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


def _older() -> str:
    listed = ", ".join(f"{code} (`{family}`)" for code, family in ELSEWHERE.items())
    return f"Older than these numbers: {listed}. 000, 016 and 090-099 are lint's own."


def main() -> int:
    """Write, or check."""
    if "--check" not in sys.argv[1:]:
        INDEX.write_text(index(), encoding="utf-8")
        return 0
    if INDEX.read_text(encoding="utf-8") == index():
        return 0
    print(f"outdated: {INDEX.name}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
