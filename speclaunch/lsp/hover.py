"""What is told of the thing under the cursor: a finding's rule, an argument, a key of a recipe."""

from __future__ import annotations

from lsprotocol.types import Hover, MarkupContent, MarkupKind, Range

from speclaunch.engine.about import about
from speclaunch.engine.argument import EngineVariable, name_of
from speclaunch.engine.catalogue import Catalogue, load
from speclaunch.lint.report import ReportedFinding
from speclaunch.lsp.checking import CheckedDocument, is_same_file
from speclaunch.lsp.cursor import Kind, flag_at, key_at, kind
from speclaunch.lsp.keys import about_key
from speclaunch.lsp.positions import Positions
from speclaunch.rules.pages import page, page_url

SLIME = "--sglang-"
"""Before the engine's flags in slime's scripts."""


def hover(
    checked: CheckedDocument, text: str, positions: Positions, line: int, column: int
) -> Hover | None:
    """What is known of a line and column (from 1); None where nothing is."""
    parts = [_rule(one) for one in found_at(checked, line, column)]
    where: Range | None = None
    thing = _thing(checked, text, positions, line, column)
    if thing is not None:
        told, start, end = thing
        parts.append(told)
        where = Range(positions.position(line, start), positions.position(line, end))
    if not parts:
        return None
    return Hover(MarkupContent(MarkupKind.Markdown, "\n\n---\n\n".join(parts)), where)


def found_at(checked: CheckedDocument, line: int, column: int) -> list[ReportedFinding]:
    """The findings that underline a place."""
    return [one for one in checked.found if _underlines(one, checked.path, line, column)]


def _underlines(one: ReportedFinding, path: str, line: int, column: int) -> bool:
    place = one.finding.place
    here = is_same_file(place.path, path) and place.line == line
    return here and place.column <= column <= place.column + max(place.length, 1)


def _rule(one: ReportedFinding) -> str:
    finding = one.finding
    told = page(finding.code)
    what = told.body.partition("## What it does\n")[2].partition("\n## ")[0].strip()
    url = page_url(finding.code)
    more = f"[{finding.code}]({url})" if url else f"`speclaunch explain {finding.code}`"
    versions = f" (SGLang {', '.join(one.engines)})" if one.engines else ""
    return f"**{told.title}**{versions}\n\n{told.summary}\n\n{what}\n\n{more}"


def _thing(
    checked: CheckedDocument, text: str, positions: Positions, line: int, column: int
) -> tuple[str, int, int] | None:
    lines = positions.lines
    catalogue = load(checked.version_at(line))
    what, base = kind(text, checked.path)
    if what is Kind.COMMANDS:
        flag = flag_at(lines[line - 1], column)
        if flag is None:
            return None
        name, start, end = flag
        told = argument(name.replace(SLIME, "--", 1), catalogue)
        return (told, start, end) if told else None
    key = key_at(lines, line, column, base)
    if key is None:
        return None
    above, name, start = key
    if above in (("args",), ("recovery", "minimal")):
        told = argument(name, catalogue)
    elif above == ("engine", "env"):
        told = variable(catalogue.variables.get(name), catalogue)
    else:
        told = about_key((*above, name))
    return (told, start, start + len(name)) if told else None


def argument(name: str, catalogue: Catalogue) -> str:
    """What is known of a server argument, as Markdown; empty where nothing is."""
    told = about(name_of(name), catalogue)
    if told is None:
        return ""
    return "\n\n".join((f"**{told.asked}** (SGLang {catalogue.version})", *told.lines))


def variable(found: EngineVariable | None, catalogue: Catalogue) -> str:
    """What is known of an environment variable of the engine."""
    if found is None:
        return ""
    told = [
        f"**{found.name}** (SGLang {catalogue.version})",
        f"{found.type}; default {found.default}.",
    ]
    if not found.read:
        told.append("Nothing in this release reads it.")
    if found.replacement:
        told.append(f"Use {found.replacement}.")
    return "\n\n".join(told)
