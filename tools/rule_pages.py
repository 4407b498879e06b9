"""Writes docs/rules/ from the rules: one page each and a list of them.

python tools/rule_pages.py            writes
python tools/rule_pages.py --check    exits 1 when a page is missing, old or left over
"""

from __future__ import annotations

import sys
from pathlib import Path

from speclaunch.lint.notices import NOTICES
from speclaunch.report.rule_page import index, page, page_of_notice
from speclaunch.rules.registry import all_rules

PAGES = Path(__file__).resolve().parent.parent / "docs" / "rules"


def wanted() -> dict[str, str]:
    """Every file of docs/rules/ and its text."""
    pages = {f"{rule.code}.md": page(rule) for rule in all_rules()}
    pages |= {f"{notice.code}.md": page_of_notice(notice) for notice in NOTICES}
    return {**pages, "README.md": index(all_rules(), NOTICES)}


def differences() -> list[str]:
    """What is not as it should be in docs/rules/."""
    texts = wanted()
    there = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    left = [f"{name} is of no rule" for name in sorted(there.keys() - texts.keys())]
    return left + [
        f"{name} is {'old' if name in there else 'missing'}"
        for name, text in sorted(texts.items())
        if there.get(name) != text
    ]


def main() -> int:
    """Write, or check."""
    if "--check" in sys.argv[1:]:
        found = differences()
        for line in found:
            print(line)
        return 1 if found else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    texts = wanted()
    for path in PAGES.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
