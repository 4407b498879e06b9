"""`speclaunch upgrade --output-format json`: the verdict of each deployment, and its reasons.

`docs/reference/upgrade.schema.json` is generated from `UpgradeDocument`; a test compares them.
Within version 1 keys are never removed or redefined; new keys may be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from speclaunch.checks import Advisory
from speclaunch.engine import ArgumentOutcome, EffectiveArgument, PlanDifference
from speclaunch.measure.advice.plan_requests import PlanComparison
from speclaunch.measure.contract.records import FieldResult
from speclaunch.measure.upgrade.deployments import DeploymentUpgrade
from speclaunch.measure.upgrade.reasons import (
    UpgradeReason,
    UpgradeVerdict,
    advisories_across,
    verdict_of,
)
from speclaunch.measure.upgrade.running import ReleaseRun


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
    """A known engine bug. `unknown`: the missing fact that decides whether it affects."""

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
    """First greedy answer that differs from the other release's."""
    broken_fields: list[str]
    """Request fields that speculation changes, documented or not; empty if not checked."""


class DeploymentRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """One deployment. `changes` is null if it has no counterpart at the other release."""

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
