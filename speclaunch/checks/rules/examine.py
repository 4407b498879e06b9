"""Look up the facts of a request, resolve its plan, and run the rules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.rules.finding import Finding, RuleResults, Severity
from speclaunch.checks.rules.grounds import annotate_grounds
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.registry import all_rules
from speclaunch.checks.rules.runner import check_rules, finding_of
from speclaunch.core import SpeclaunchError, is_directory, models_dir, reads, recipes_dir
from speclaunch.engine import (
    Assumptions,
    Facts,
    Hardware,
    Machine,
    Plan,
    Request,
    RequestedValue,
    SettingsFrom,
    Sources,
    UnknownFact,
    UnknownValueError,
    architectures,
    choose_hardware,
    gather,
    models_folders,
    resolve,
)

if TYPE_CHECKING:
    from speclaunch.engine import Runtime


class Lookup(Struct, frozen=True):
    """Sources of facts. `hardware` is None if unknown; no default is assumed."""

    model_dirs: tuple[Path, ...] = ()
    online: bool = False
    assume: Assumptions = ()
    hardware: Hardware | None = None
    runtime: Runtime | None = None
    project: SettingsFrom = SettingsFrom()
    """Settings files for the directories below them: model directories and assumptions."""

    def facts(self, request: Request) -> Facts:
        """Return the facts of a request, as far as they are known."""
        algorithm = _text(request.values.get("speculative_algorithm"))
        found = gather(
            _text(request.values.get("model_path")),
            _text(request.values.get("speculative_draft_model_path")),
            target_revision=_text(request.values.get("revision")),
            draft_revision=_text(request.values.get("speculative_draft_model_revision")),
            tokenizers=(algorithm or "").upper() == "STANDALONE",
            sources=self._sources(request),
            hardware=self.hardware,
            runtime=self.runtime,
        )
        unknown = [*found.unknown, *_unread(request.version)]
        if request.unseen is not None:
            unknown.append(UnknownFact("the other arguments", request.unseen))
        return replace(found, unknown=tuple(unknown))

    def on(self, named: str, machine: Machine | None = None, *, cpu: bool = False) -> Lookup:
        """Return the lookup with the hardware of a recipe: see `choose_hardware`."""
        chosen = choose_hardware(self.hardware, named, machine, cpu=cpu)
        return replace(self, hardware=chosen.hardware)

    def _sources(self, request: Request) -> Sources:
        """Return the sources: the options first, then the settings of the file's repository."""
        folder = _folder(request.place.path)
        project = self.project.of(folder)
        return Sources(
            (*self.model_dirs, *project.model_dirs),
            models_folders(folder),
            models_dir(),
            self.online,
            (*self.assume, *project.assume),
        )


def _folder(path: str) -> Path:
    """Return the directory of a deployment.

    The working directory for a command line or a built-in recipe.
    """
    here = Path.cwd()
    try:
        folder = reads.resolve(Path(path)).parent
        ours = folder.is_relative_to(recipes_dir())
    except (OSError, ValueError, RuntimeError):  # not a file name
        return here
    return here if ours or not is_directory(folder) else folder


def _unread(version: str) -> Iterator[UnknownFact]:
    """Yield the missing facts of a user-added engine (`engine catalogue add`).

    Only its arguments were read.
    """
    known = architectures(version)
    if not known.exact:
        what = f"what SGLang {known.requested} does with model architectures"
        yield UnknownFact(what, f"that of {known.version} is taken", "update speclaunch")


_GENERATED = "SPL017"
"""Rule whose rows were extracted from the engine; hand-written rules take precedence."""


class CheckedRequest(Struct, frozen=True):
    """A deployment's plan and the rules' results."""

    plan: Plan
    results: RuleResults


class PreflightError(SpeclaunchError):
    """Deployment that will fail or serve wrongly: it is neither started nor rendered (exit 1)."""


def check_request(request: Request, lookup: Lookup, rules: Iterable[Rule]) -> CheckedRequest:
    """Look up the facts, resolve the plan, and run the rules."""
    return check_plan(resolve(request, lookup.facts(request)), rules)


def check_plan(plan: Plan, rules: Iterable[Rule]) -> CheckedRequest:
    """Run the rules on a resolved plan."""
    selected = tuple(rules)
    results = _explained_once(check_rules(plan, selected), plan, selected)
    return CheckedRequest(plan, annotate_grounds(results, plan, plan.facts, selected))


def _explained_once(results: RuleResults, plan: Plan, selected: Sequence[Rule]) -> RuleResults:
    """Drop extracted refusals that the error of another rule covers.

    This also holds if the other rule is not selected: ignoring it ignores the refusal.
    """
    if not any(finding.code == _GENERATED for finding in results.findings):
        return results
    codes = {rule.code for rule in selected}
    rest = [rule for rule in all_rules() if rule.code not in codes and rule.can_be_error]
    others = check_rules(plan, rest).findings
    taken = {
        place
        for finding in (*results.findings, *others)
        if finding.code != _GENERATED and finding.severity is Severity.ERROR
        for place in (finding.place, *finding.others)
    }
    findings = tuple(
        finding
        for finding in results.findings
        if finding.code != _GENERATED or taken.isdisjoint((finding.place, *finding.others))
    )
    return replace(results, findings=findings)


def check_together(plans: Sequence[Plan], rules: Iterable[Rule]) -> Iterator[tuple[Plan, Finding]]:
    """Run the rules that compare deployments on plans of one engine version.

    The parts of one deployment may run several versions.
    """
    for rule in rules:
        if rule.check_across is None:
            continue
        fitting = [plan for plan in plans if rule.holds_in(plan.request.version)]
        if rule.of_deployments:
            fitting = [plan for plan in fitting if plan.request.server_context is not None]
        with contextlib.suppress(UnknownValueError):
            for plan, verdict in rule.check_across(fitting):
                yield plan, finding_of(rule, verdict, plan)


def is_compared(plan: Plan) -> bool:
    """True if a rule that compares deployments may need the plan. Few plans qualify."""
    request = plan.request
    if request.server_context is None and not request.values.keys() & _OF_SEVERAL:
        return False
    for rule in _comparing():
        if not rule.holds_in(plan.request.version):
            continue
        try:
            if rule.compares(plan):
                return True
        except UnknownValueError:
            return True
    return False


_OF_SEVERAL = frozenset({"disaggregation_mode", "nnodes"})
"""Arguments that make a server one of several. Without them, no comparing rule is imported."""


@cache
def _comparing() -> tuple[Rule, ...]:
    """Return the comparing rules, except those about parts of one deployment (in one file)."""
    return tuple(rule for rule in all_rules() if rule.check_across and not rule.of_deployments)


def _text(requested: RequestedValue | None) -> str | None:
    value: Any = requested.value if requested is not None and requested.known else None
    return value if isinstance(value, str) else None
