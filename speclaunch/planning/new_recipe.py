"""`speclaunch init`: a recipe for a target, by the best-founded way that one version serves."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from speclaunch.engine.catalogue import held_versions
from speclaunch.errors import InputError, LaunchError, Problem, SpeclaunchError
from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.engines import at_hand, named
from speclaunch.facts.runtime import find_runtime
from speclaunch.importer.recipe_text import options_with
from speclaunch.launch.prepare import prepare
from speclaunch.plan.budget import Fit
from speclaunch.planning.new_recipe_text import text_of
from speclaunch.planning.placing import NoPlace, Placed, in_gib, place
from speclaunch.planning.planned_deployment import PlannedDeployment, planned
from speclaunch.planning.settling import request_of
from speclaunch.planning.ways import Method, Way, too_early, ways_for
from speclaunch.recipe.load import load
from speclaunch.record import record
from speclaunch.rules.examine import Lookup
from speclaunch.rules.finding import Severity
from speclaunch.rules.registry import all_rules

_OF_MODEL = ("trust_remote_code",)


class NotWrittenError(SpeclaunchError):
    """No recipe could be made that the rules and the plan are content with (exit 1)."""


@record
class Wanted:
    """What a recipe is asked for. None: chosen here."""

    target: Checkpoint
    version: str
    lookup: Lookup
    """Where facts come from, with the hardware."""
    hardware: str
    """As it was said: `h200:8`."""
    method: str | None = None
    """One of the methods, or a name of an algorithm of SGLang."""
    draft: str | None = None
    unknown_memory: bool = False
    """Whether a recipe is wanted, too, of which nobody can tell whether it fits."""
    way: Way | None = None
    """Chosen by hand, from the list of the ways."""


@record
class NewRecipe:
    """A recipe that was read back and found clean."""

    text: str
    way: Way
    placed: Placed
    planned: PlannedDeployment
    skipped: Mapping[str, str] = field(default_factory=dict)
    """The ways that are better founded, and why they were not chosen."""


def version_for(engine: str | None) -> str:
    """The release that a recipe is for: the one that was named, else the installed one, else the
    newest known. Raises InputError."""
    if engine is not None:
        return named(engine).held
    try:
        installed = at_hand(find_runtime(None))
    except LaunchError:
        installed = None
    return installed or held_versions()[-1]


def new_recipe(wanted: Wanted) -> NewRecipe:
    """Write and prove the recipe. Raises NotWrittenError that says why there is none, InputError
    for a method or a draft that nobody knows for the target."""
    tried = _Tried()
    for unknown in (False, True)[: 1 + wanted.unknown_memory]:
        made = _first(wanted, tried, unknown=unknown)
        if made is not None:
            return made
    raise NotWrittenError(_why_none(wanted, tried))


@record(frozen=False)
class _Tried:
    """The ways that were tried, and what stood against each."""

    skipped: dict[str, str] = field(default_factory=dict)
    least: NoPlace | None = None
    """Where memory was short."""
    unknown: bool = False
    """Whether the memory of one is not known."""


def _first(wanted: Wanted, tried: _Tried, *, unknown: bool) -> NewRecipe | None:
    """The recipe of the first way that serves; None where there is none."""
    tried.skipped.clear()
    for way in _candidates(wanted):
        name = called(way)
        unusable = way.unusable or too_early(way, wanted.version)
        if unusable is not None:
            tried.skipped[name] = unusable
            continue
        arguments = {**_of_model(wanted.target), **way.arguments}
        found = place(arguments, wanted.version, wanted.lookup, unknown=unknown)
        if isinstance(found, NoPlace):
            unread = found.unknown
            tried.skipped[name] = _unread(wanted, way, found.why) if unread else found.why
            tried.least = found if found.memory else tried.least
            tried.unknown |= found.unknown
            if _is_hopeless(found):
                break
            continue
        made = _proven(wanted, way, found, tried.skipped)
        if isinstance(made, NewRecipe):
            return made
        tried.skipped[name] = made
    return None


def _unread(wanted: Wanted, way: Way, why: str) -> str:
    """Why the memory of a way is unknown, with the checkpoint to pull if its config is the gap."""
    names = {"model_path": wanted.target.name, **way.arguments}
    facts = wanted.lookup.facts(request_of(names, {}, wanted.version))
    for name, found in ((wanted.target.name, facts.target), (way.draft, facts.draft)):
        if name is not None and (found is None or found.unread):
            known = "is unknown" if found is None else "is known in part"
            pull = f"`speclaunch models pull {shlex.quote(name)}` reads it"
            return f"the memory is not known: the config.json of {name} {known}; {pull}"
    return why


def _of_model(target: Checkpoint) -> dict[str, Any]:
    """What a target itself asks for, as our own `conf/model/` says where it has the target."""
    said = options_with("model", "model_path", target.name)
    own = {name: said[name] for name in _OF_MODEL if name in said}
    return {"model_path": target.name, **own}


def called(way: Way) -> str:
    """What a way is called in a sentence."""
    return f"{way.method} with {way.draft}" if way.draft else str(way.method)


def _candidates(wanted: Wanted) -> Sequence[Way]:
    """The ways that may be taken, the best founded first."""
    if wanted.way is not None:
        return (wanted.way,)
    ways = ways_for(wanted.target)
    if wanted.draft is not None:
        ways = tuple(way for way in ways if way.draft == wanted.draft)
        if not ways:
            raise InputError(
                Problem(
                    f"the index has no draft {wanted.draft} for {wanted.target.name}",
                    help=f"`speclaunch drafts {wanted.target.name}` lists the drafts",
                )
            )
    if wanted.method is not None:
        asked = plain(wanted.method)
        chosen = tuple(way for way in ways if asked in names_of(way))
        if not chosen:
            known = ", ".join(dict.fromkeys(str(way.method) for way in ways))
            raise InputError(
                Problem(
                    f"there is no way {wanted.method!r} for {wanted.target.name}",
                    help=f"choose one of {known}",
                )
            )
        ways = chosen
    return ways


def names_of(way: Way) -> frozenset[str]:
    """The names that a method goes by; `EAGLE` alone is a draft of its own, and not MTP."""
    found = {plain(way.method)}
    if way.method is Method.MTP:
        found.add("nextn")
    elif way.algorithm is not None:
        found.add(plain(way.algorithm))
    return frozenset(found)


def plain(name: str) -> str:
    """A name without dashes and case."""
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def _is_hopeless(found: NoPlace) -> bool:
    """Whether no other way helps: the target's own class or weights are in the way."""
    settled = found.settled
    if settled is not None and settled.unknown_class is not None:
        return True
    return found.budget is not None and found.budget.impossible


def _proven(
    wanted: Wanted, way: Way, placed: Placed, skipped: Mapping[str, str]
) -> NewRecipe | str:
    """The recipe, read back: composed, resolved, judged, budgeted; why not, where it fails."""
    text = text_of(wanted.target, way, placed, wanted.hardware, skipped)
    with tempfile.TemporaryDirectory(prefix="speclaunch-init-") as folder:
        path = Path(folder) / f"{file_stem(wanted.target.name)}.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            prepared = prepare(load(str(path)), dry_run=True)
        except InputError as error:  # an argument that this release does not have
            return error.problems[0].message
        # the facts are those that count where the recipe will stand, and not those of the copy
        here = replace(prepared.recipe, path=Path.cwd() / path.name)
        prepared = replace(prepared, recipe=here)
        found = planned(prepared, wanted.lookup, all_rules(), label=path.stem)
    wrong = [one for one in found.findings if one.severity is not Severity.INFO]
    if wrong:
        return f"{wrong[0].code}: {wrong[0].message}"
    if found.budget.fit is not Fit.FITS and found.budget.fit is not placed.budget.fit:
        return found.budget.why
    return NewRecipe(text, way, placed, found, skipped)


def file_stem(name: str) -> str:
    """A file's name for a target: `llama_3_1_8b_instruct`."""
    short = name.rstrip("/").rpartition("/")[2]
    return "".join(c if c.isalnum() else "_" for c in short.lower()).strip("_") or "recipe"


def _why_none(wanted: Wanted, tried: _Tried) -> list[Problem]:
    head = (
        f"no way to speculate for {wanted.target.name} serves on {wanted.hardware} with SGLang "
        f"{wanted.version}"
    )
    help_ = None
    if tried.least is not None:
        size = tried.least.least_bytes
        needed = "" if size is None else f"; it takes at least {in_gib(size)} of all GPUs together"
        help_ = f"use more or larger GPUs, or a quantised checkpoint{needed}"
    elif tried.unknown:
        help_ = (
            "make the missing facts known: --models DIR, or --online (`speclaunch models pull` "
            "keeps them); --unknown-memory writes the recipe all the same"
        )
    elif wanted.version != held_versions()[-1]:
        help_ = f"`speclaunch drafts {wanted.target.name}` shows which releases take which way"
    return [
        Problem(head, help=help_),
        *(Problem(f"{name}: {why}") for name, why in tried.skipped.items()),
    ]
