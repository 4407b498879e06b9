"""`speclaunch init`: a recipe with the best supported speculation method for a target.

Each value is written with its reason. `--force` writes the best supported recipe despite findings.
"""

from __future__ import annotations

import shlex
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Lookup, Severity, all_rules
from speclaunch.core import InputError, LaunchError, Problem, SpeclaunchError
from speclaunch.deployments import RecipeLine, load, options_with, prepare, recipe_text
from speclaunch.engine import (
    DRAFT_PATH,
    STEPS,
    Checkpoint,
    Fit,
    UnknownValueError,
    budget,
    current_name,
    declare,
    find_runtime,
    held_versions,
    installed_catalogue,
    named,
)
from speclaunch.engine import load as load_catalogue
from speclaunch.measure.advice.drafts import SpeculationMethod, Way, too_early, ways_for
from speclaunch.measure.advice.placing import (
    CONTEXT,
    LENGTHENED,
    TIGHT,
    TP,
    Demand,
    NoPlace,
    PlacedArguments,
    in_gib,
    place,
    place_on,
    request_of,
    settle,
    sizes,
)
from speclaunch.measure.advice.planned_deployment import PlannedDeployment, planned

_WIDTH = 100
_MOST_SKIPPED = 4


def text_of(
    target: Checkpoint, way: Way, placed: PlacedArguments, hardware: str, skipped: Mapping[str, str]
) -> str:
    """Return a recipe's text with comments. `skipped`: rejected methods and the reasons."""
    version = placed.settled.version
    catalogue = load_catalogue(version)
    args = {
        current_name(name, catalogue) or name: RecipeLine(value, _comment(name, way, placed))
        for name, value in sorted(placed.arguments.items(), key=_order)
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
        hardware=RecipeLine(hardware, "hardware of the plan; `auto`: this machine's GPUs"),
    )


def _order(argument: tuple[str, Any]) -> int:
    """Return an argument's sort key: the model and its GPUs, speculation, then all others."""
    name, first = argument[0], ("model_path", "trust_remote_code", TP)
    return first.index(name) if name in first else 3 + (not name.startswith("speculative_"))


def _comment(name: str, way: Way, placed: PlacedArguments) -> str | None:
    if name in placed.why:
        return " ".join(placed.why[name].split())
    if name == CONTEXT:
        return "requested maximum tokens per request"
    if name == TP and placed.budget.fit is Fit.UNKNOWN:
        return "a guess, because memory use is unknown"
    if name == TP:
        fewest = "the fewest GPUs that fit a request of the full context"
        fewest += "" if placed.is_reduced else " without reduced settings"
        return fewest if placed.holds_a_request else "all GPUs, for the largest KV cache"
    if name == DRAFT_PATH and way.draft is not None:
        return f"{way.why}; confidence {way.confidence}"
    return (way.setting_why or None) if name == STEPS else None


def _header(
    target: Checkpoint, way: Way, placed: PlacedArguments, hardware: str, skipped: Mapping[str, str]
) -> Iterator[str]:
    settled, budget = placed.settled, placed.budget
    draft = f" with {way.draft}" if way.draft else ""
    yield from _wrapped(
        "", f"{way.method}{draft} for {target.name} on {hardware}, written by `speclaunch init`."
    )
    yield ""
    yield from _wrapped("Why:      ", f"{way.why}; confidence {way.confidence}")
    for source in way.sources[:2]:
        yield from _wrapped("Source:   ", source)
    if summary := way.published_at(placed.arguments):
        yield from _wrapped("Measured: ", f"{summary}; `speclaunch drafts --all` lists all")
    yield from _wrapped("Facts:    ", f"{target.name}: {target.origin}")
    if budget.fit is Fit.UNKNOWN:
        yield from _wrapped("Memory:   ", f"unknown: {budget.why}")
    else:
        yield from _wrapped("Memory:   ", f"{budget.why}{_requests(placed)}")
    for warning in placed.warnings:
        yield from _wrapped("Warning:  ", warning)
    yield from _wrapped(
        "Checked:  ",
        f"SGLang {settled.version}: {_finding_text(placed)}; `speclaunch plan` shows it",
    )
    if dict(target.raw).get("auto_map") and not placed.arguments.get("trust_remote_code"):
        yield from _wrapped(
            "Code:     ",
            "the checkpoint contains its own code; if the start requires it, review the code and "
            "add `trust_remote_code: true`",
        )
    if settled.skipped:
        codes = ", ".join(dict.fromkeys(rule.code for rule in settled.skipped))
        yield from _wrapped("Unknown:  ", f"{codes} skipped: {settled.skipped[0].reason}")
    for name, why in list(skipped.items())[:_MOST_SKIPPED]:
        yield from _wrapped("Not:      ", f"{name}: {why}")
    if len(skipped) > _MOST_SKIPPED:
        yield f"          and {len(skipped) - _MOST_SKIPPED} more"
    yield from _wrapped("Other:    ", f"`speclaunch drafts {target.name}` lists all methods")


def _finding_text(placed: PlacedArguments) -> str:
    """Return the findings as text. Only a recipe written with `--force` has errors."""
    found = placed.settled.findings
    errors = dict.fromkeys(finding.code for finding in found if finding.severity is Severity.ERROR)
    if errors:
        return f"written despite {', '.join(errors)}"
    codes = [LENGTHENED] * (placed.settled.lengthened is not None)
    codes += [TIGHT] * (placed.budget.fit is Fit.TIGHT)
    return f"no findings except {' and '.join(codes)}" if codes else "no findings"


def _requests(placed: PlacedArguments) -> str:
    budget = placed.budget
    number, context = budget.requests_at_context, budget.context_length
    if number is None or context is None:
        return ""
    if not number:
        return f"; no request of the full context ({context:,} tokens) fits"
    requests = "request" if number == 1 else "concurrent requests"
    return f"; {number:,} {requests} of the full context ({context:,} tokens)"


def _wrapped(label: str, text: str) -> list[str]:
    complete = " ".join(f"{label.strip()} {text}".split()) if not label else text
    return textwrap.wrap(
        complete,
        _WIDTH - 2,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


_OF_MODEL = ("trust_remote_code",)


class NotWrittenError(SpeclaunchError):
    """Raised if no recipe passes the rules and the plan (exit code 1)."""


class RecipeRequest(Struct, frozen=True):
    """Options for a new recipe. None means an automatic choice."""

    target: Checkpoint
    version: str
    lookup: Lookup
    hardware: str
    """Hardware as set by the user: `h200:8`."""
    method: str | None = None
    """Name of a method, or of an SGLang algorithm."""
    draft: str | None = None
    unknown_memory: bool = False
    """True to accept a recipe with unknown memory use."""
    context: int | None = None
    """Tokens of the longest request; None: the model's own context."""
    tight: bool = False
    """True to accept settings that fit only in the best case if no others fit."""
    way: Way | None = None
    """Method that the user selected from the list."""


class NewRecipe(Struct, frozen=True):
    """A recipe that passed the checks when read back."""

    text: str
    way: Way
    placed: PlacedArguments
    planned: PlannedDeployment
    skipped: Mapping[str, str] = {}
    """Rejected better-supported methods, each with the reason."""


def version_for(engine: str | None) -> str:
    """Return the release for a recipe: the user's, else the installed, else the newest known.

    Raises InputError.
    """
    if engine is not None:
        return named(engine).held
    try:
        installed = installed_catalogue(find_runtime(None))
    except LaunchError:
        installed = None
    return installed or held_versions()[-1]


def new_recipe(request: RecipeRequest) -> NewRecipe:
    """Return the requested recipe, verified by reading it back.

    Raises NotWrittenError with the reasons if no recipe works. Raises InputError if the target has
    no such method or draft, or if the context is longer than the target's.
    """
    _require_context(request)
    tried = _Tried()
    for unknown in (False, True)[: 1 + request.unknown_memory]:
        for fit in (Fit.FITS, Fit.TIGHT)[: 1 + request.tight]:
            for fewer in (False, True):
                demand = Demand(request.context, fewer, fit)
                made = _best(request, tried, demand, unknown=unknown)
                if made is not None:
                    return made
                if not tried.memory:  # fewer requests would not help
                    break
    raise NotWrittenError(_why_none(request, tried))


def _require_context(request: RecipeRequest) -> None:
    if request.context is None:
        return
    try:
        own = request.target.context_in(request.version)
    except UnknownValueError:
        return
    if own is not None and request.context > own:
        raise InputError(
            f"--context {request.context} exceeds the maximum of {request.target.name} ({own})",
            help=f"set --context {own} or less",
        )


class _Tried(Struct):
    """Methods tried so far, and the reasons against them."""

    skipped: dict[str, str] = {}
    memory: list[tuple[Way, NoPlace]] = []
    """Methods that did not fit in memory."""
    unknown: bool = False
    """True if a method's memory use is unknown."""


def _best(
    request: RecipeRequest, tried: _Tried, demand: Demand, *, unknown: bool
) -> NewRecipe | None:
    """Return the recipe that serves the most requests with the longest context.

    All methods are compared at the same load. Ties go to the best supported method. None if no
    method serves.
    """
    tried.skipped.clear()
    tried.memory.clear()
    placed: list[tuple[Way, PlacedArguments]] = []
    for way in _candidates(request):
        found = _placed(request, way, demand, unknown=unknown)
        if isinstance(found, PlacedArguments):
            placed.append((way, found))
            if not found.lost_context and not demand.fewer_requests:
                break  # no other method serves more
            continue
        why = _unread(request, way, found.why) if found.unknown else found.why
        tried.skipped[called(way)] = why
        if found.memory:
            tried.memory.append((way, found))
        tried.unknown |= found.unknown
        if _is_hopeless(found):
            break
    placed.sort(key=lambda pair: (-_running(pair[1]), pair[1].lost_context))
    for number, (way, found) in enumerate(placed):
        others = ((called(other), _less(it, found)) for other, it in placed[number + 1 :])
        worse = {name: why for name, why in others if why is not None}
        made = _proven(request, way, found, {**tried.skipped, **worse})
        if isinstance(made, NewRecipe):
            return made
        tried.skipped[called(way)] = made
    return None


def _unread(request: RecipeRequest, way: Way, why: str) -> str:
    """Return why memory use is unknown, with the checkpoint to pull if a config is missing."""
    names = {"model_path": request.target.name, **way.arguments}
    facts = request.lookup.facts(request_of(names, {}, request.version))
    for name, found in ((request.target.name, facts.target), (way.draft, facts.draft)):
        if name is not None and (found is None or found.unread):
            known = "is unknown" if found is None else "is partly known"
            pull = f"`speclaunch models pull {shlex.quote(name)}` reads it"
            return f"memory unknown: the config.json of {name} {known}; {pull}"
    return why


def _placed(
    request: RecipeRequest, way: Way, demand: Demand, *, unknown: bool
) -> PlacedArguments | NoPlace:
    unusable = way.unusable or too_early(way, request.version)
    if unusable is not None:
        return NoPlace(unusable)
    arguments = {**_of_model(request.target), **way.arguments}
    return place(arguments, request.version, request.lookup, unknown=unknown, demand=demand)


def _running(found: PlacedArguments) -> int:
    return found.budget.running_requests or 0


def _less(other: PlacedArguments, chosen: PlacedArguments) -> str | None:
    if _running(other) < _running(chosen):
        return f"serves {_running(other):,} concurrent requests"
    if other.lost_context > chosen.lost_context:
        return f"limits requests to {other.longest or 0:,} tokens"
    return None


def _of_model(target: Checkpoint) -> dict[str, Any]:
    """Return `model_path`, and the target's arguments in speclaunch's `conf/model/`, if any."""
    options = options_with("model", "model_path", target.name)
    own = {name: options[name] for name in _OF_MODEL if name in options}
    return {"model_path": target.name, **own}


def called(way: Way) -> str:
    """Return a method's name, with its draft if it has one."""
    return f"{way.method} with {way.draft}" if way.draft else str(way.method)


def _candidates(request: RecipeRequest) -> Sequence[Way]:
    """Return the requested methods, best supported first."""
    if request.way is not None:
        return (request.way,)
    ways = ways_for(request.target)
    if request.draft is not None:
        ways = tuple(way for way in ways if way.draft == request.draft)
        if not ways:
            raise InputError(
                f"no draft {request.draft} for {request.target.name} in the index",
                help=f"list the drafts: speclaunch drafts {request.target.name}",
            )
    if request.method is not None:
        method = plain(request.method)
        chosen = tuple(way for way in ways if method in names_of(way))
        if not chosen:
            known = ", ".join(dict.fromkeys(str(way.method) for way in ways))
            raise InputError(
                f"no speculation method {request.method!r} for {request.target.name}",
                help=f"use a supported method: {known}",
            )
        ways = chosen
    return ways


def usable_ways(request: RecipeRequest) -> Iterator[tuple[Way, dict[str, Any]]]:
    """Yield the methods that the release accepts, with their arguments, best supported first."""
    for way in _candidates(request):
        if not (way.unusable or too_early(way, request.version)):
            yield way, {**_of_model(request.target), **way.arguments}


def names_of(way: Way) -> frozenset[str]:
    """Return all names of a method; `EAGLE` alone means a separate draft, not MTP."""
    found = {plain(way.method)}
    if way.method is SpeculationMethod.MTP:
        found.add("nextn")
    elif way.algorithm is not None:
        found.add(plain(way.algorithm))
    return frozenset(found)


def plain(name: str) -> str:
    """Return a name in lower case without dashes, underscores and spaces."""
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def _is_hopeless(found: NoPlace) -> bool:
    """True if no other method helps, because the target's class or weights prevent serving."""
    settled = found.settled
    if settled is not None and settled.unknown_class is not None:
        return True
    return found.budget is not None and found.budget.impossible


def _proven(
    request: RecipeRequest, way: Way, placed: PlacedArguments, skipped: Mapping[str, str]
) -> NewRecipe | str:
    """Return the recipe if it passes when read back, else the reason why it fails.

    Reading back resolves the recipe, runs the rules, and computes memory use.
    """
    text = text_of(request.target, way, placed, request.hardware, skipped)
    with tempfile.TemporaryDirectory(prefix="speclaunch-init-") as folder:
        path = Path(folder) / f"{file_stem(request.target.name)}.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            prepared = prepare(load(str(path)), dry_run=True)
        except InputError as error:  # an argument that this release does not have
            return error.problems[0].message
        # use the facts of the recipe's final location, not of the temporary copy
        here = replace(prepared.recipe, path=Path.cwd() / path.name)
        prepared = replace(prepared, recipe=here)
        found = planned(prepared, request.lookup, all_rules(), label=path.stem)
    known = {LENGTHENED, *((TIGHT,) if placed.demand.fit is Fit.TIGHT else ())}
    wrong = [
        finding
        for finding in found.findings
        if finding.severity is not Severity.INFO and finding.code not in known
    ]
    if wrong:
        return f"{wrong[0].code}: {wrong[0].message}"
    if found.budget.fit is not Fit.FITS and found.budget.fit is not placed.budget.fit:
        return found.budget.why
    return NewRecipe(text, way, placed, found, skipped)


def file_stem(name: str) -> str:
    """Return a target's file name without suffix: `llama_3_1_8b_instruct`."""
    short = name.rstrip("/").rpartition("/")[2]
    return "".join(c if c.isalnum() else "_" for c in short.lower()).strip("_") or "recipe"


def _why_none(request: RecipeRequest, tried: _Tried) -> list[Problem]:
    head = (
        f"no speculation method for {request.target.name} works on {request.hardware} with SGLang "
        f"{request.version}"
    )
    help_ = None
    if tried.memory:
        help_ = _larger(request, tried)
    elif tried.unknown:
        help_ = (
            "provide the missing facts with --models DIR or --online (`speclaunch models pull` "
            "stores them), or write the recipe anyway with --unknown-memory"
        )
    elif request.version != held_versions()[-1]:
        help_ = (
            f"`speclaunch drafts {request.target.name}` shows the releases that accept each method"
        )
    return [
        Problem(head, help=help_),
        *(Problem(f"{name}: {why}") for name, why in tried.skipped.items()),
    ]


def _larger(request: RecipeRequest, tried: _Tried) -> str:
    """Return a remedy: hardware that would serve, or options for this hardware."""
    fitting, size = _fitting_hardware(request), tried.memory[0][1].least_bytes
    instead = "more or larger GPUs" if fitting is None else fitting
    needed = (
        "" if size is None else f"; the model needs at least {in_gib(size)} on all GPUs together"
    )
    help_ = f"use {instead}, or a quantized checkpoint{needed}"
    demand = Demand(request.context, True, Fit.TIGHT)
    if not request.tight and any(
        isinstance(_placed(request, way, demand, unknown=False), PlacedArguments)
        for way, _ in tried.memory
    ):
        help_ += "; --tight writes a recipe that fits only in the best case"
    return help_


def _fitting_hardware(request: RecipeRequest) -> str | None:
    """Return text that names sufficient hardware, preferably the same GPUs; None if none fits."""
    here = request.lookup.hardware
    if here is None:
        return None
    ways = list(usable_ways(request))
    demand = Demand(request.context)
    for name in dict.fromkeys((here.name, *_LARGER)):
        for count in _COUNTS:
            kind = declare(f"{name}:{count}")
            if count * (kind.memory_mib or 0) <= here.count * (here.memory_mib or 0):
                continue
            lookup = replace(request.lookup, hardware=kind)
            for way, arguments in ways:
                found = place_on(arguments, count, request.version, lookup, demand)
                if isinstance(found, PlacedArguments):
                    return f"{name}:{count}, where {called(way)} fits"
                if _is_hopeless(found):
                    break
    return None


_LARGER = ("h100", "h200", "b200")
_COUNTS = (1, 2, 4, 8)


class ForcedRecipe(Struct, frozen=True):
    """Recipe that is written despite findings (`--force`) and may not serve."""

    text: str
    way: Way
    placed: PlacedArguments


def forced_recipe(request: RecipeRequest) -> ForcedRecipe | None:
    """Return a recipe with the best supported method on all GPUs, with the rules' fixes.

    None if the release accepts no method.
    """
    hardware = request.lookup.hardware
    if hardware is None:
        return None
    ranks = sizes(hardware)[-1]
    for way, arguments in usable_ways(request):
        settled = settle({**arguments, TP: ranks}, request.version, request.lookup)
        try:
            placed = PlacedArguments(settled, ranks, budget(settled.plan), dict(settled.applied))
        except UnknownValueError:
            continue
        text = text_of(request.target, way, placed, request.hardware, {})
        return ForcedRecipe(text, way, placed)
    return None
