"""Pieces of HTML. Whatever comes from a recipe, a checkpoint or a process is data: escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from speclaunch import __version__
from speclaunch.report.plan.style import CSS


def text(data: object) -> str:
    """Anything as text of a page, attributes included; control characters are not."""
    shown = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in str(data)
    )
    return html.escape(shown, quote=True)


def page(title: str, body: Iterable[str]) -> str:
    """One document that needs nothing from elsewhere: its policy forbids to fetch or run any."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="speclaunch {text(__version__)}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{text(title)}</title>
<style>{CSS}</style>
</head>
<body>
{PATTERNS}
<main>
{chr(10).join(part for part in body if part)}
</main>
<footer>speclaunch {text(__version__)}: nothing was started; secrets are left out.</footer>
</body>
</html>
"""


PATTERNS = """<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>
<pattern id="stripes" width="8" height="8" patternUnits="userSpaceOnUse"
 patternTransform="rotate(45)"><rect width="3" height="8" fill="#000" fill-opacity=".35"/></pattern>
<pattern id="beyond" width="8" height="8" patternUnits="userSpaceOnUse"
 patternTransform="rotate(-45)"><rect width="4" height="8" fill="#d1242f" fill-opacity=".8"/>
</pattern>
<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse"><circle cx="3" cy="3" r="1.3"
 fill="#000" fill-opacity=".45"/></pattern>
</defs></svg>"""
"""What tells parts of a picture apart without colours."""


def section(title: str, *parts: str, level: int = 2) -> str:
    """A heading and what is below it."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h{level}>{text(title)}</h{level}>\n{inside}\n</section>"


def paragraph(said: object, kind: str = "") -> str:
    """A sentence."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{text(said)}</p>"


def badge(said: object, kind: str) -> str:
    """A short word with a ground of its own: good, bad, odd, info."""
    return f'<li class="badge {kind}">{text(said)}</li>'


def listing(items: Iterable[object], kind: str = "notes") -> str:
    """A list of sentences; empty for none."""
    inside = "".join(f"<li>{text(item)}</li>" for item in items)
    return f'<ul class="{kind}">{inside}</ul>' if inside else ""


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and what they are."""
    inside = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in pairs)
    return f'<dl class="facts">{inside}</dl>' if inside else ""


def head_row(names: Iterable[str]) -> str:
    """The heads of columns."""
    cells = "".join(f'<th scope="col">{text(name)}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead>"


def table(caption: str, head: Sequence[str], rows: Iterable[str], kind: str = "") -> str:
    """A table; `stack`: on a narrow screen every cell has a line of its own; `legend`: no wider
    than it needs to be."""
    attribute = f' class="{kind}"' if kind else ""
    inside = "\n".join(rows)
    return (
        f'<div class="scroll"><table{attribute} aria-label="{text(caption)}">{head_row(head)}\n'
        f"<tbody>\n{inside}\n</tbody></table></div>"
    )


def cell(said: object, label: str = "", kind: str = "") -> str:
    """A cell of a table, with the head of its column for narrow screens."""
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' data-label="{text(label)}"' if label else ""
    return f"<td{attributes}>{text(said)}</td>"
