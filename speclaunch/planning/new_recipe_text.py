"""The text of a recipe that `speclaunch init` writes: each value with its reason."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.engine.canonical import current_name
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.importer.recipe_text import RecipeLine, recipe_text
from speclaunch.plan.budget import Fit
from speclaunch.plan.topics.drafts import PATH
from speclaunch.planning.placing import CONTEXT, TIGHT, TP, Placed
from speclaunch.planning.settling import LENGTHENED
from speclaunch.planning.ways import Way
from speclaunch.rules.finding import Severity

_WIDTH = 100
_MOST_SKIPPED = 4


def text_of(
    target: Checkpoint, way: Way, placed: Placed, hardware: str, skipped: Mapping[str, str]
) -> str:
    """The whole recipe."""
    version = placed.settled.version
    catalogue = load_catalogue(version)
    args = {
        current_name(name, catalogue) or name: RecipeLine(value, _comment(name, way, placed))
        for name, value in _ordered(placed.arguments)
    }
    env = {
        name: RecipeLine(value, placed.why.get(name)) for name, value in placed.settled.env.items()
    }
    with_draft = f" with {way.draft}" if way.draft else ""
    return recipe_text(
        header=list(_header(target, way, placed, hardware, skipped)),
        description=f"{way.method}{with_draft} for {target.name}",
        args=args,
        env=env,
        version=version,
        hardware=RecipeLine(hardware, "what the plan was made for; `auto`: this machine's GPUs"),
    )


def _ordered(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The model and its GPUs first, then speculation, then the rest."""
    first = ("model_path", "trust_remote_code", TP)
    yield from ((name, arguments[name]) for name in first if name in arguments)
    rest = [name for name in arguments if name not in first]
    own = [name for name in rest if name.startswith("speculative_")]
    yield from ((name, arguments[name]) for name in own)
    yield from ((name, arguments[name]) for name in rest if name not in own)


def _comment(name: str, way: Way, placed: Placed) -> str | None:
    if name in placed.why:
        return " ".join(placed.why[name].split())
    if name == CONTEXT:
        return "the longest request, as requested"
    if name == TP and placed.budget.fit is Fit.UNKNOWN:
        return "a guess: what fits is not known"
    if name == TP:
        return (
            "the fewest GPUs with room for a request of the whole context"
            * (placed.holds_a_request)
            or "the most room that this hardware has"
        )
    if name == PATH and way.draft is not None:
        return f"{way.why}; confidence {way.confidence}"
    return None


def _header(
    target: Checkpoint, way: Way, placed: Placed, hardware: str, skipped: Mapping[str, str]
) -> Iterator[str]:
    """What it is, why it is so, what it was checked for, and what was not chosen."""
    settled, budget = placed.settled, placed.budget
    draft = f" with {way.draft}" if way.draft else ""
    yield from _wrapped(
        "", f"{way.method}{draft} for {target.name} on {hardware}, written by `speclaunch init`."
    )
    yield ""
    yield from _wrapped("Why:      ", f"{way.why}; confidence {way.confidence}")
    for source in way.sources[:2]:
        yield from _wrapped("Source:   ", source)
    yield from _wrapped("Facts:    ", f"{target.name}: {target.origin}")
    if budget.fit is Fit.UNKNOWN:
        yield from _wrapped("Memory:   ", f"whether it fits is unknown: {budget.why}")
    else:
        yield from _wrapped("Memory:   ", f"{budget.why}{_requests(placed)}")
    for warning in placed.warnings:
        yield from _wrapped("Warning:  ", warning)
    yield from _wrapped(
        "Checked:  ", f"SGLang {settled.version}: {_found(placed)}; `speclaunch plan` shows it"
    )
    if dict(target.raw).get("auto_map") and not _runs_code(placed):
        yield from _wrapped(
            "Code:     ",
            "the checkpoint brings code of its own; if the start asks for it, review that code and "
            "add `trust_remote_code: true`",
        )
    if settled.unjudged:
        codes = ", ".join(dict.fromkeys(one.code for one in settled.unjudged))
        yield from _wrapped("Unknown:  ", f"{codes} had no verdict: {settled.unjudged[0].reason}")
    for name, why in list(skipped.items())[:_MOST_SKIPPED]:
        yield from _wrapped("Not:      ", f"{name}: {why}")
    if len(skipped) > _MOST_SKIPPED:
        yield f"          and {len(skipped) - _MOST_SKIPPED} more"
    yield from _wrapped("Other:    ", f"`speclaunch drafts {target.name}` lists all ways")


def _found(placed: Placed) -> str:
    """Findings of the recipe; only one that was written with `--force` has errors."""
    found = placed.settled.findings
    errors = dict.fromkeys(one.code for one in found if one.severity is Severity.ERROR)
    if errors:
        return f"written despite {', '.join(errors)}"
    codes = [LENGTHENED] * (placed.settled.lengthened is not None)
    codes += [TIGHT] * (placed.budget.fit is Fit.TIGHT)
    return f"no finding but {' and '.join(codes)}" if codes else "no finding"


def _runs_code(placed: Placed) -> bool:
    return bool(placed.arguments.get("trust_remote_code"))


def _requests(placed: Placed) -> str:
    budget = placed.budget
    number, context = budget.requests_at_context, budget.context_length
    if number is None or context is None:
        return ""
    if not number:
        return f"; no request of the full context ({context:,} tokens) has room"
    return f"; {number:,} of the full context ({context:,} tokens) at once"


def _wrapped(label: str, said: str) -> list[str]:
    """Lines of a comment below a label."""
    whole = " ".join(f"{label.strip()} {said}".split()) if not label else said
    return textwrap.wrap(
        whole,
        _WIDTH - 2,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
