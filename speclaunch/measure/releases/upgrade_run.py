"""Run and compare both releases of an upgrade on this machine; write the upgrade document.

The document (`speclaunch upgrade --output-format json`) has each deployment's verdict and reasons.
`docs/reference/upgrade.schema.json` is generated from `UpgradeDocument`; a test compares them.
Within version 1, keys are never removed or redefined; new keys may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Advisory
from speclaunch.core import InputError, LaunchError
from speclaunch.engine import ArgumentOutcome, EffectiveArgument, PlanDifference, is_idle
from speclaunch.measure.advice.plan_requests import PlanComparison
from speclaunch.measure.bench.measurement import LEAST_PAIRS, SpeedClaim, interval
from speclaunch.measure.prove.contract import served_contract
from speclaunch.measure.prove.contract_servers import (
    ContractProgress,
    FieldResult,
    FieldRow,
    changed_fields,
)
from speclaunch.measure.releases.launched import (
    EngineSupply,
    ReleaseAnswers,
    ReleaseRecipe,
    Say,
    launched,
)
from speclaunch.measure.releases.upgrade import (
    Aspect,
    DeploymentUpgrade,
    UpgradeReason,
    UpgradeVerdict,
    advisories_across,
    shown,
    verdict_of,
)
from speclaunch.serving import unfinished_work

_VOLATILE = frozenset(
    {"port", "nccl_port", "random_seed", "dist_init_addr", "log_file", "config", "model_path"}
    | {"served_model_name", "tokenizer_path", "speculative_draft_model_path", "download_dir"}
)
"""Arguments that may differ between starts, or that name the same model differently."""


class ReleaseRun(Struct, frozen=True):
    """Result of starting a release: whether it serves, and its answers."""

    release: str
    serves: bool
    reason: str = ""
    seconds: float | None = None
    observation: ReleaseAnswers = ReleaseAnswers()
    info: Mapping[str, Any] = {}
    difference: str | None = None
    """First answer that differs from the other release's; None if none is known."""


class UpgradeProgress(unfinished_work.Progress, frozen=True):
    """Finished runs, and the contract rows that the unfinished run has checked so far."""

    runs: tuple[ReleaseRun, ...] = ()
    rows: tuple[FieldRow, ...] = ()

    @property
    def saved(self) -> str:
        parts = (f"{len(self.runs)} releases" * bool(self.runs), ContractProgress(self.rows).saved)
        return ", ".join(filter(None, parts))


StoredUpgrade: TypeAlias = unfinished_work.StoredWork[UpgradeProgress]
"""An upgrade's runs, stored on disk. `key` identifies both recipes."""


def run_releases(
    recipes: Sequence[ReleaseRecipe],
    stored: StoredUpgrade,
    supply: EngineSupply,
    seconds: float,
    say: Say,
) -> None:
    """Run the recipes that have not run yet, in order. Raises InputError, LaunchError."""
    due = recipes[len(stored.progress.runs) :]
    supply.prefetch([found.version for found in due])
    for found in due:
        supply.require(found)
        run = run_release(found, stored, seconds, say)
        stored.add(UpgradeProgress((*stored.progress.runs, run)))


def run_release(
    found: ReleaseRecipe, stored: StoredUpgrade, seconds: float, say: Say
) -> ReleaseRun:
    """Start a release, send the fixed prompts, check the contract, and stop; return the run."""
    runs, folder = stored.progress.runs, stored.directory
    say(f"starting SGLang {found.version}")
    try:
        with launched(found, folder, seconds, say) as served:
            say(f"SGLang {found.version} serves after {served.seconds:.0f} s")
            info, observation = served.observed.info(), served.observed.observe()
            if served.can_run_twice:
                with launched(found, folder, seconds, say, speculates=False) as plain:
                    contract = served_contract(
                        *(served.engine.address, plain.engine.address, served.plan, say),
                        stored.progress.rows,
                        lambda rows: stored.add(UpgradeProgress(runs, rows)),
                    )
                observation = replace(observation, fields=contract.rows)
            difference = None
            if runs and runs[0].serves:
                difference = served.observed.difference(runs[0].observation, observation)
            return ReleaseRun(
                found.version, True, "", served.seconds, observation, info, difference
            )
    except (InputError, LaunchError) as error:
        return ReleaseRun(found.version, False, str(error))


def run_reasons(
    upgrade: DeploymentUpgrade, before: ReleaseRun, after: ReleaseRun
) -> tuple[UpgradeReason, ...]:
    """Return the reasons against the upgrade, from the plans and both runs.

    Values unknown to the plan come from the servers' reports.
    """
    reasons = list(upgrade.reasons)
    if not after.serves:
        text = f"SGLang {after.release} does not serve: {after.reason}"
        return (*reasons, UpgradeReason(Aspect.START, UpgradeVerdict.NOT_SAFE, text))
    if not before.serves:
        text = f"SGLang {before.release} does not serve: {before.reason}"
        return (*reasons, UpgradeReason(Aspect.START, UpgradeVerdict.UNKNOWN, text))
    found = upgrade.comparison
    if found is not None:
        rows = list(_reported(found, before.info, after.info))
        seen = {row.name for _, row in rows}
        reasons = [
            reason
            for reason in reasons
            if not (reason.aspect is Aspect.VALUE and reason.name in seen)
        ]
        reasons += _changed_values(found, rows, before.info, after.info)
    return (*reasons, *_answers(before, after))


_Rows = tuple[EffectiveArgument, EffectiveArgument]
"""One argument in the plans of the current and the target release."""


def _reported(
    found: PlanComparison, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[_Rows]:
    old = {row.name: row for row in found.before.rows if row.version_name in before}
    for row in found.after.rows:
        if row.name in old and row.version_name in after and row.name not in _VOLATILE:
            yield old[row.name], row


def _changed_values(
    found: PlanComparison,
    rows: Sequence[_Rows],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Iterator[UpgradeReason]:
    for old, new in rows:
        ours, theirs = before[old.version_name], after[new.version_name]
        if ours == theirs or not (ours or theirs):  # none and off are alike
            continue
        if is_idle(found.before.plan, new.name) and is_idle(found.after.plan, new.name):
            continue
        is_expected = all(row.outcome is not ArgumentOutcome.UNKNOWN for row in (old, new))
        is_expected &= (old.effective, new.effective) == (ours, theirs)
        why = new.why if is_expected else "as the servers report"
        if isinstance(ours, dict) and isinstance(theirs, dict):
            ours, theirs = _without_equal(ours, theirs), _without_equal(theirs, ours)
            if not (ours or theirs):  # one has a key without a value
                continue
        text = f"{new.name}: {shown(ours)} → {shown(theirs)} ({why})"
        yield UpgradeReason(Aspect.VALUE, UpgradeVerdict.DIFFERS, text, new.name)


def _without_equal(value: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a nested value that differ from `other`."""
    found: dict[str, Any] = {}
    for name, ours in value.items():
        theirs = other.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            if inner := _without_equal(ours, theirs):
                found[name] = inner
        elif ours != theirs:
            found[name] = ours
    return found


def _answers(before: ReleaseRun, after: ReleaseRun) -> Iterator[UpgradeReason]:
    if after.difference is not None:
        text = f"different greedy answer: {after.difference}"
        yield UpgradeReason(Aspect.OUTPUT, UpgradeVerdict.DIFFERS, text)
    changed = changed_fields(before.observation.fields, after.observation.fields)
    for name in changed.broken:
        text = f"the request field {name} behaves differently with speculation"
        yield UpgradeReason(Aspect.CONTRACT, UpgradeVerdict.NOT_SAFE, text, name)
    for name in changed.unknown:
        text = (
            f"the request field {name} behaves differently with speculation; SGLang "
            f"{before.release} was not tested with it"
        )
        yield UpgradeReason(Aspect.CONTRACT, UpgradeVerdict.UNKNOWN, text, name)
    old, new = _by_prompt(before), _by_prompt(after)
    pairs = [(theirs, ours) for ours, theirs in zip(old, new, strict=True) if ours and theirs]
    if any(old) and not any(new):
        yield UpgradeReason(
            Aspect.ACCEPTANCE, UpgradeVerdict.NOT_SAFE, "no answer has a verify step"
        )
    elif len(pairs) >= LEAST_PAIRS:
        ratio = interval([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        if ratio.claim is SpeedClaim.DOES_NOT_PAY:
            ours, theirs = before.observation.acceptance, after.observation.acceptance
            text = f"acceptance length {ours:.2f} → {theirs:.2f}"
            yield UpgradeReason(Aspect.ACCEPTANCE, UpgradeVerdict.NOT_SAFE, text)


def _by_prompt(run: ReleaseRun) -> Sequence[float]:
    return [answer.accept_length or 0.0 for answer in run.observation.answers]


class ValueRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """An argument whose effective value differs. `unknown`: a missing fact hides a value."""

    name: str
    before: Any
    after: Any
    unknown: bool
    why: str


class MemoryNumberRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A number of the memory budget at both releases."""

    name: str
    unit: str
    before: int | float | str | None
    after: int | float | str | None


class AdvisoryRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A known engine bug. `unknown`: missing fact that decides if it affects the deployment."""

    id: str
    summary: str
    severity: str
    unknown: str | None = None


class ChangesRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """Differences between two releases of one deployment."""

    command: list[str]
    values: list[ValueRecord]
    memory: list[MemoryNumberRecord]
    fixed: list[AdvisoryRecord]
    introduced: list[AdvisoryRecord]


class RunRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A release that was started here. `acceptance_length`: tokens per verify step."""

    release: str
    serves: bool
    reason: str
    seconds: float | None
    acceptance_length: float | None
    answers: int
    differs: str | None
    """First greedy answer that differs from the other release's; null if none is known."""
    broken_fields: list[str]
    """Request fields that speculation changes, documented or not; empty if not checked."""


class DeploymentRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """One deployment. `changes` is null if the other release has no counterpart for a setting."""

    name: str
    file: str
    line: int
    source: str
    to: str
    verdict: UpgradeVerdict
    reasons: list[UpgradeReason]
    steps: list[str]
    changes: ChangesRecord | None
    runs: list[RunRecord]


class UpgradeDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All deployments, and the worst of their verdicts."""

    version: Literal[1] = 1
    to: str
    verdict: UpgradeVerdict
    deployments: list[DeploymentRecord]


def upgrade_document(
    to: str, found: Sequence[DeploymentUpgrade], runs: Sequence[ReleaseRun] = ()
) -> UpgradeDocument:
    """Return the document of the upgrades. `runs`: both releases' runs, for a single upgrade."""
    return UpgradeDocument(
        to=to,
        verdict=verdict_of(reason for upgrade in found for reason in upgrade.reasons),
        deployments=[_deployment(upgrade, runs) for upgrade in found],
    )


def _deployment(upgrade: DeploymentUpgrade, runs: Sequence[ReleaseRun]) -> DeploymentRecord:
    found = upgrade.comparison
    return DeploymentRecord(
        upgrade.name,
        upgrade.place.path,
        upgrade.place.line,
        upgrade.source,
        upgrade.to,
        upgrade.verdict,
        list(upgrade.reasons),
        list(upgrade.steps),
        None if found is None else changes_record(found),
        [_run(run) for run in runs],
    )


def changes_record(found: PlanComparison) -> ChangesRecord:
    """Return the differences between two plans of one deployment."""
    fixed, introduced, undecided = advisories_across(found)
    return ChangesRecord(
        list(found.command),
        [_value(difference) for difference in found.telling],
        [MemoryNumberRecord(row.name, row.unit, row.before, row.after) for row in found.budget],
        [_advisory(advisory) for advisory in fixed],
        [_advisory(advisory) for advisory in introduced]
        + [_advisory(advisory, why) for advisory, why in undecided],
    )


def _value(difference: PlanDifference) -> ValueRecord:
    rows = (difference.before, difference.after)
    unknown = any(row is not None and row.outcome is ArgumentOutcome.UNKNOWN for row in rows)
    why = difference.after.why if difference.after is not None else "no such argument"
    return ValueRecord(difference.name, _plain(rows[0]), _plain(rows[1]), unknown, why)


def _plain(row: EffectiveArgument | None) -> Any:
    value = None if row is None else row.effective
    if isinstance(value, tuple | list):
        return list(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _advisory(advisory: Advisory, unknown: str | None = None) -> AdvisoryRecord:
    return AdvisoryRecord(advisory.id, advisory.summary, advisory.severity.value, unknown)


def _run(run: ReleaseRun) -> RunRecord:
    observed = run.observation
    return RunRecord(
        run.release,
        run.serves,
        run.reason,
        run.seconds,
        observed.acceptance,
        len(observed.answers),
        run.difference,
        [row.field for row in observed.fields if row.result is FieldResult.DIFFERS],
    )
