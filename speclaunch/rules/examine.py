"""From a request to its plan and its findings: facts are looked up, then the rules are asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch import reads
from speclaunch.facts.facts import Facts, UnknownFact
from speclaunch.facts.gather import gather
from speclaunch.facts.hardware import Hardware
from speclaunch.facts.project_settings import Assumptions, assumed_above
from speclaunch.facts.repository_facts import models_folders
from speclaunch.facts.safe_json import is_directory
from speclaunch.facts.sources import Sources
from speclaunch.plan.architectures import architectures
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.request import Given, Request
from speclaunch.plan.resolve import resolve
from speclaunch.record import record
from speclaunch.resources import models_dir, recipes_dir
from speclaunch.rules.finding import Finding, Judgement
from speclaunch.rules.grounds import with_grounds
from speclaunch.rules.interface import Rule
from speclaunch.rules.registry import all_rules
from speclaunch.rules.runner import finding_of, judge

if TYPE_CHECKING:
    from speclaunch.facts.runtime import Runtime


@record
class Lookup:
    """Where facts come from. `hardware` None: not known (nothing is assumed)."""

    model_dirs: tuple[Path, ...] = ()
    online: bool = False
    assume: Assumptions = ()
    hardware: Hardware | None = None
    runtime: Runtime | None = None

    def facts(self, request: Request) -> Facts:
        """The facts of a request, as far as they can be told."""
        algorithm = _text(request.given.get("speculative_algorithm"))
        found = gather(
            _text(request.given.get("model_path")),
            _text(request.given.get("speculative_draft_model_path")),
            target_revision=_text(request.given.get("revision")),
            draft_revision=_text(request.given.get("speculative_draft_model_revision")),
            tokenizers=(algorithm or "").upper() == "STANDALONE",
            sources=self._sources(request),
            hardware=self.hardware,
            runtime=self.runtime,
        )
        unknown = [*found.unknown, *_unread(request.version)]
        if request.unseen is not None:
            unknown.append(UnknownFact("the other arguments", request.unseen))
        return replace(found, unknown=tuple(unknown))

    def _sources(self, request: Request) -> Sources:
        """With what the repository of the file says, the option first."""
        folder = _folder(request.place.path)
        return Sources(
            self.model_dirs,
            models_folders(folder),
            models_dir(),
            self.online,
            (*self.assume, *assumed_above(folder)),
        )


def _folder(path: str) -> Path:
    """Where a deployment stands; the working directory for one of a command line, or of ours."""
    here = Path.cwd()
    try:
        folder = reads.resolve(Path(path)).parent
        ours = folder.is_relative_to(recipes_dir())
    except (OSError, ValueError, RuntimeError):  # not the name of a file
        return here
    return here if ours or not is_directory(folder) else folder


def _unread(version: str) -> Iterator[UnknownFact]:
    """Of an engine that the user added (`engine catalogue add`) only the arguments were read."""
    known = architectures(version)
    if not known.exact:
        what = f"what SGLang {known.asked} does with model architectures"
        yield UnknownFact(what, f"that of {known.version} is taken", "update speclaunch")


@record
class Examined:
    """A deployment's plan and what the rules say of it."""

    plan: Plan
    judgement: Judgement


def examine(request: Request, lookup: Lookup, rules: Iterable[Rule]) -> Examined:
    """Look up the facts, resolve, judge."""
    facts, asked = lookup.facts(request), tuple(rules)
    plan = resolve(request, facts)
    return Examined(plan, with_grounds(judge(plan, asked), plan, facts, asked))


def examine_together(
    plans: Sequence[Plan], rules: Iterable[Rule]
) -> Iterator[tuple[Plan, Finding]]:
    """What the rules that look across deployments say of plans of one engine version."""
    for rule in rules:
        if rule.check_across is None:
            continue
        fitting = [plan for plan in plans if rule.holds_in(plan.request.version)]
        with contextlib.suppress(UnknownValueError):
            for plan, verdict in rule.check_across(fitting):
                yield plan, finding_of(rule, verdict, plan)


def is_compared(plan: Plan) -> bool:
    """Whether a rule that looks across deployments may look at a plan: nearly none is."""
    for rule in _comparing():
        if not rule.holds_in(plan.request.version):
            continue
        try:
            if rule.compares(plan):
                return True
        except UnknownValueError:
            return True
    return False


@cache
def _comparing() -> tuple[Rule, ...]:
    return tuple(rule for rule in all_rules() if rule.check_across is not None)


def _text(given: Given | None) -> str | None:
    value: Any = given.value if given is not None and given.known else None
    return value if isinstance(value, str) else None
