"""Run rules on a plan: look up a request's facts, resolve the plan, and find the facts behind
errors.

Errors may depend on facts from the index, a repository's file or an assumption. The rules run again
without these facts: an error that disappears depends on them. Most errors follow from the arguments
alone and need no second plan.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.rules.interface import (
    DeploymentPlace,
    Finding,
    Rule,
    RuleResults,
    Severity,
    SkippedRule,
    Verdict,
    in_order,
)
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core import (
    Redactor,
    SpeclaunchError,
    holds_secret,
    is_directory,
    is_secret_variable,
    lazy,
    models_dir,
    reads,
    recipes_dir,
)
from speclaunch.engine import (
    Assumptions,
    Checkpoint,
    Facts,
    FactSource,
    Hardware,
    Machine,
    PartialConfig,
    Plan,
    Request,
    RequestedValue,
    RequestOrigin,
    SettingsFrom,
    Sources,
    UnknownFact,
    UnknownValueError,
    architectures,
    canonical,
    checkpoint_fact,
    choose_hardware,
    from_config,
    gather,
    is_secret_argument,
    models_folders,
    resolve,
)

if TYPE_CHECKING:
    from speclaunch.engine import Runtime


_FLAG = lazy(r"(?<![\w-])--[a-z0-9][a-z0-9-]*")
_OF_WORDS = "SPL0"
"""Code prefix of rules about single tokens. They apply regardless of the other arguments."""
BUG = "of a bug in this rule, please report it"
"""Beginning of the reason for skipping a rule that raised an error."""


def check_rules(plan: Plan, rules: Iterable[Rule]) -> RuleResults:
    """Return the findings of `rules` on a plan, in the order of their places.

    A rule that needs an unknown value is listed as skipped; its earlier verdicts remain. Skipped
    advisories are not listed, because most depend on facts that few files provide.
    """
    findings: list[Finding] = []
    skipped: list[SkippedRule] = []
    for rule in rules:
        if rule.check_across is not None or not rule.holds_in(plan.request.version):
            continue  # compares deployments: no verdict on a single plan, and no need to import it
        if rule.of_deployments and plan.request.server_context is None:
            continue
        if plan.request.unseen and not rule.code.startswith(_OF_WORDS):
            if not rule.is_advisory:
                skipped.append(SkippedRule(rule.code, rule.name, plan.request.unseen))
            continue
        try:
            if rule.algorithms and plan.algorithm not in rule.algorithms:
                continue
            for verdict in rule.check(plan):
                findings.append(finding_of(rule, verdict, plan))
        except UnknownValueError as error:
            if not rule.is_advisory:
                skipped.append(SkippedRule(rule.code, rule.name, str(error)))
        except Exception as error:  # a bug in one rule must not hide the findings of the others
            reason = f"{BUG}: {type(error).__name__}: {error}"
            skipped.append(SkippedRule(rule.code, rule.name, reason))
    findings.sort(key=in_order)
    return RuleResults(tuple(findings), tuple(skipped))


def finding_of(rule: Rule, verdict: Verdict, plan: Plan) -> Finding:
    """Return a verdict as a finding, at the place of the first name that the user set."""
    request = plan.request
    written = [
        n for n in verdict.at if n in request.values or n in request.env or n in request.extras
    ]
    places = [plan.place(name) for name in written]
    place = verdict.place or (places[0] if places else request.place)
    others = tuple(dict.fromkeys(o for o in (*places, *verdict.others) if o != place))
    hide = plan.once(_hider)
    return Finding(
        rule.code,
        rule.name,
        verdict.severity or rule.severity,
        hide(verdict.message),
        hide(verdict.why),
        verdict.fix and replace(verdict.fix, text=hide(_with_own_flags(verdict.fix.text, request))),
        place,
        request.version,
        others,
        (DeploymentPlace(request.place, request.name),),
        {name: hide(_set_value(name, request)) for name in sorted(set(verdict.at))},
    )


def _set_value(name: str, request: Request) -> str:
    """Return the user's value as text; empty if the user set none."""
    for values in (request.values, request.env, request.extras):
        if name in values:
            return str(values[name].value)
    return ""


def _with_own_flags(text: str, request: Request) -> str:
    """Return `text` with slime's spelling of its flags if the request comes from slime."""
    if request.origin is not RequestOrigin.SLIME:
        return text
    from speclaunch.deployments import (  # noqa: PLC0415
        OWN,
        prefixed,
    )

    def flag(found: re.Match[str]) -> str:
        argument = request.catalogue.by_flag(found[0])
        # slime sets these itself: they must not be written
        taken = argument is not None and canonical(argument.dest) not in OWN
        return prefixed(found[0]) if taken else found[0]

    return _FLAG.sub(flag, text)


def secrets_of(request: Request) -> list[str]:
    """Return the secret values of a request's arguments and variables."""
    arguments = (*request.values.values(), *request.overridden)
    secret = [
        argument
        for argument in arguments
        if is_secret_argument(argument.name) or holds_secret(argument.value)
    ]
    env = request.env.values()
    secret += [
        variable
        for variable in env
        if is_secret_variable(variable.name) or holds_secret(variable.value)
    ]
    # shorter values are no secrets, and would match in every sentence
    return [str(value.value) for value in secret if value.known and len(str(value.value)) > 3]


def _hider(plan: Plan) -> Callable[[str], str]:
    return Redactor(secrets_of(plan.request)).text


_LOCAL = frozenset({FactSource.DIRECTORY, FactSource.CACHE})


def annotate_grounds(
    results: RuleResults, plan: Plan, facts: Facts, rules: Iterable[Rule]
) -> RuleResults:
    """Return the results with the source of each error's facts in its `why`.

    An error that depends on doubtful facts (of another revision, from a weak source) becomes a
    warning, unless a document states those facts.
    """
    distant = [checkpoint for checkpoint in facts.checkpoints if _is_distant(checkpoint)]
    errors = {finding.code for finding in results.errors}
    if not distant or not errors:
        return results
    selected = [rule for rule in rules if rule.code in errors]
    of_words = _found_keys(selected, _request_only(plan))
    if all(_key(finding) in of_words for finding in results.errors):
        return results
    firm = {
        checkpoint.name: _found_keys(selected, resolve(plan.request, _without(facts, checkpoint)))
        for checkpoint in distant
    }
    certain = {
        checkpoint.name: _found_keys(selected, resolve(plan.request, _as_stated(facts, checkpoint)))
        for checkpoint in distant
        if checkpoint.origin is not None and checkpoint.origin.stated
    }
    findings = tuple(
        _grounded(
            finding,
            [checkpoint for checkpoint in distant if _key(finding) not in firm[checkpoint.name]],
            certain,
        )
        if finding.severity is Severity.ERROR
        else finding
        for finding in results.findings
    )
    return replace(results, findings=findings)


class _FactAccessError(Exception):
    """Access to an unavailable fact. Like an unknown value, it ends the rule without a verdict."""


class _UnavailableFacts:
    """Unavailable facts and effective values: a rule that accesses them has no verdict."""

    def __getattr__(self, name: str) -> Never:
        raise _FactAccessError(name)

    def __contains__(self, name: object) -> Never:
        raise _FactAccessError(name)

    __iter__ = __len__ = __bool__ = __getitem__ = __contains__


def _request_only(plan: Plan) -> Plan:
    missing: Any = _UnavailableFacts()
    return Plan(plan.request, missing, missing, missing, missing, missing)


def _found_keys(rules: Iterable[Rule], plan: Plan) -> set[tuple[str, str]]:
    return {_key(finding) for finding in check_rules(plan, rules).findings}


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message


def _is_distant(checkpoint: Checkpoint) -> bool:
    origin = checkpoint.origin
    return origin is not None and (origin.provenance not in _LOCAL or origin.assumed is not None)


def _without(facts: Facts, gone: Checkpoint) -> Facts:
    unknown = UnknownFact(checkpoint_fact(gone.name), "not considered")
    return replace(_replaced(facts, gone, None), unknown=(*facts.unknown, unknown))


def _as_stated(facts: Facts, checkpoint: Checkpoint) -> Facts:
    """Return the facts, with a checkpoint's config reduced to the keys that a document states."""
    stated = checkpoint.origin.stated if checkpoint.origin is not None else ()
    raw = checkpoint.field_or_none("raw")
    known = {key: raw[key] for key in stated if key in raw}
    config = PartialConfig(checkpoint.name, known, set(raw) - set(known))
    return _replaced(
        facts, checkpoint, from_config(checkpoint.name, config, None, origin=checkpoint.origin)
    )


def _replaced(facts: Facts, checkpoint: Checkpoint, other: Checkpoint | None) -> Facts:
    def instead(found: Checkpoint | None) -> Checkpoint | None:
        return other if found is not None and found.name == checkpoint.name else found

    return replace(facts, target=instead(facts.target), draft=instead(facts.draft))


def _grounded(
    finding: Finding, grounds: list[Checkpoint], certain: Mapping[str, set[tuple[str, str]]]
) -> Finding:
    if not grounds:
        return finding
    sources: list[tuple[str, object]] = []
    is_doubted = False
    for checkpoint in grounds:
        origin = checkpoint.origin
        if origin is not None and _key(finding) in certain.get(checkpoint.name, ()):
            sources.append((checkpoint.name, origin.stated_in))
        else:
            sources.append((checkpoint.name, origin))
            is_doubted = is_doubted or (origin is not None and origin.doubt is not None)
    if is_doubted:
        facts = " and ".join(f"{name} ({source})" for name, source in sources)
        why = f"{finding.why}. Uncertain: based on {facts}".removeprefix(". ")
        return replace(finding, why=why, severity=Severity.WARNING)
    origins = "; ".join(f"{name}: {source}" for name, source in sources)
    return replace(finding, why=f"{finding.why} ({origins})".lstrip())


class Lookup(Struct, frozen=True):
    """Sources of facts. `hardware` is None if unknown; no default is assumed."""

    model_dirs: tuple[Path, ...] = ()
    online: bool = False
    assume: Assumptions = ()
    hardware: Hardware | None = None
    runtime: Runtime | None = None
    project: SettingsFrom = SettingsFrom()
    """Project settings of each directory: model directories and assumptions."""

    def facts(self, request: Request) -> Facts:
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
    """Return a file's directory; the working directory for a command line or built-in recipe."""
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
        yield UnknownFact(what, f"{known.version}'s behavior is assumed", "update speclaunch")


_GENERATED = "SPL017"
"""Rule whose rows were extracted from the engine; hand-written rules take precedence."""


class CheckedRequest(Struct, frozen=True):
    """A deployment's plan and the rules' results."""

    plan: Plan
    results: RuleResults


class PreflightError(SpeclaunchError):
    """The deployment would fail or serve wrong output: it is not started or rendered (exit 1)."""


def check_request(request: Request, lookup: Lookup, rules: Iterable[Rule]) -> CheckedRequest:
    """Return the plan of a request with its facts, and the rules' results."""
    return check_plan(resolve(request, lookup.facts(request)), rules)


def check_plan(plan: Plan, rules: Iterable[Rule]) -> CheckedRequest:
    """Return a resolved plan with the rules' results."""
    selected = tuple(rules)
    results = _explained_once(check_rules(plan, selected), plan, selected)
    return CheckedRequest(plan, annotate_grounds(results, plan, plan.facts, selected))


def _explained_once(results: RuleResults, plan: Plan, selected: Sequence[Rule]) -> RuleResults:
    """Return the results without extracted refusals that another rule's error covers.

    The other rule need not be selected: ignoring it also ignores the refusal.
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
    """Yield the findings of rules that compare deployments, each with its plan.

    All plans have the same engine version, except for parts of one deployment.
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
    """True if a rule that compares deployments may need the plan."""
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
"""Arguments that make a server one of several. Without them, no rule that compares deployments is
imported."""


@cache
def _comparing() -> tuple[Rule, ...]:
    return tuple(rule for rule in all_rules() if rule.check_across and not rule.of_deployments)


def _text(requested: RequestedValue | None) -> str | None:
    value: Any = requested.value if requested is not None and requested.known else None
    return value if isinstance(value, str) else None
