"""The results of a campaign as a page of the documentation."""

from __future__ import annotations

from typing import Any

_HEAD = """\
# What the translations were tried on

`campaigns/translations.py` runs `migrate`, `import`, `render` and `launch --dry-run` over generated
texts, shipped recipes and published commands, between random releases. A real bash with stand-ins
for `python3` and `sglang` runs each text before and after, and the release's own argparse reads the
recorded arguments. A comparison is a text whose meaning was equal before and after, except for what
the verb announced. No command that a release rejects had exit code 0.

Written by `python -m campaigns translations merge`; the tests compare this page with the stored
results.
"""


def page(results: dict[str, Any]) -> str:
    """Return the page of the results that `merge` stored."""
    lines = [
        _HEAD,
        f"{results['generated']} generated texts (seed {results['seed']}), "
        f"{len(results['versions'])} releases, {results['date']}; "
        f"{len(results['open'])} open defects.",
        "",
        "## Comparisons by kind of text",
        "",
        _row("kind", "texts", "comparisons", "defects"),
        _row(*["---"] * 4),
    ]
    for kind, row in results["kinds"].items():
        compared = sum(row.values()) - row.get("texts", 0) - row.get("defects", 0)
        cells = (row.get("texts", 0), compared, row.get("defects", 0))
        lines.append(_row(f"`{kind}`", *(str(cell) for cell in cells)))
    lines += ["", "## Open", ""]
    lines += [f"- `{one['id']}`: {one['group']}" for one in results["open"]] or ["None."]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
