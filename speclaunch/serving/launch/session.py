"""Decisions before a launch and after a failed attempt."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import LaunchError, SpeclaunchError
from speclaunch.deployments import Prepared, fit_limits
from speclaunch.engine import (
    BudgetOf,
    Facts,
    Fit,
    MemoryBudget,
    Plan,
    PlanWith,
    Suggestion,
    UnknownValueError,
    Vendor,
    format_settings,
    local_gpus,
    memory_verdict,
    nodes_of,
    resolve,
    suggest_fit,
    value_of,
)
from speclaunch.engine import budget as predict_budget
from speclaunch.serving.launch import inputs, journal
from speclaunch.serving.launch.agreement.records import RankGroup, group_of
from speclaunch.serving.launch.inputs import (
    engine_argv,
    engine_environment,
    secrets_file_of,
    tiny_models,
)
from speclaunch.serving.launch.planner import (
    Attempt,
    EngineCommand,
    LadderEnd,
    PlannedLaunch,
    Rung,
    without_model,
)

if TYPE_CHECKING:
    from speclaunch.deployments import Deployment, Recovery, Restart
    from speclaunch.engine import Checkpoint
    from speclaunch.serving.launch.attempts import Ladder
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis
    from speclaunch.serving.launch.lock import LockRequest

_NAME = "start with settings predicted to fit"


class FailureForecast(Struct, frozen=True):
    """Predicted failure of the configured settings."""

    budget: MemoryBudget
    suggestion: Suggestion

    @property
    def why(self) -> str:
        phase = self.budget.phase.value if self.budget.phase is not None else "start"
        return f"it is predicted to fail at '{phase}': {self.budget.why}"

    @property
    def rung(self) -> Rung | None:
        """First rung to try; None if no settings are predicted to fit."""
        found = self.suggestion
        if not found.fit.may_serve or not found.changes:
            return None
        return Rung(_NAME, dict(found.arguments), self.why, found.cost, found.after)

    @property
    def help(self) -> str:
        rung = self.rung
        if rung is not None:
            fits = "fit" if self.suggestion.fit is Fit.FITS else "fit only in the best case"
            return f"{format_settings(rung.changes)} is predicted to {fits}"
        fitting = next(
            (alternative for alternative in self.suggestion.alternatives if alternative.fits), None
        )
        if fitting is not None:
            return f"{fitting.what}: {fitting.verdict}"
        return f"no settings are predicted to fit: {self.suggestion.why}"


def predict_failure(
    recovery: Recovery, plan_with: PlanWith, budget: BudgetOf | None = None
) -> FailureForecast | None:
    """Return the predicted failure of the configured settings; None if they fit or the memory is
    unknown. If recovery is on, suggestions change only what `recovery` allows."""
    try:
        plan = plan_with({})
        found = memory_verdict(plan) if budget is None else budget(plan)
        if found.fit is not Fit.FAILS:
            return None
        limits = fit_limits(recovery)
        suggestion = suggest_fit(plan_with, budget=budget or predict_budget, limits=limits)
    except (SpeclaunchError, UnknownValueError):
        return None
    return FailureForecast(found, suggestion)


class Session(Struct):
    """A planned launch. `start` returns its initial decisions."""

    prepared: Prepared
    facts: Facts
    overrides: Sequence[str]
    directory: Path = Path()
    smoke: bool = False
    fresh: bool = False
    """True to start from the recipe, ignoring the last known good settings."""
    exits_after: bool = False
    on_degraded: Path | None = None
    as_configured: bool = False
    """True to start from the recipe, even if its settings are predicted to fail."""
    max_attempts: int | None = None
    """Override of the recipe's `recovery.max_attempts`; None to use the recipe's value."""
    lock: LockRequest | None = None
    """Lock to write once the engine has served; None for no lock."""

    @property
    def deployment(self) -> Deployment:
        return self.prepared.recipe.deployment

    def plan_with(self, changes: Mapping[str, Any]) -> Plan:
        return resolve(self.prepared.changed(changes).request(os.environ), self.facts)

    def ladder(self) -> Ladder | None:
        """Return the ladder of the recipe's `recovery` section; None if recovery is off."""
        settings = self.deployment.recovery
        if not self.recovers:
            return None
        from speclaunch.serving.launch.ladder import Ladder as Steps  # noqa: PLC0415

        # The launch counts attempts itself: the count restarts after an engine has served.
        unlimited = settings.model_copy(update={"max_attempts": 1_000_000})
        return Steps(unlimited, self.plan_with).next

    @property
    def recovers(self) -> bool:
        """True if other settings are tried when memory runs out. Always False for a lock, which
        allows no other settings."""
        is_on = self.deployment.recovery.policy != "off" and self.deployment.lock is None
        return is_on and not self.prepared.is_left_alone

    def forecast(self) -> tuple[tuple[Rung, ...], str]:
        """Return the recovery steps and outcome predicted if every attempt runs out of memory."""
        if not self.recovers:
            if self.prepared.is_left_alone:  # of several hosts without an agreement
                return (), (
                    "no retry: multi-host ranks need launch.agreement.directory to recover together"
                )
            return (), "recovery is off: a failed start is not retried"
        from speclaunch.serving.launch.ladder import outlook  # noqa: PLC0415

        settings = self.deployment.recovery
        limited = settings.model_copy(update={"max_attempts": self.attempts_allowed})
        first = self.predicted_rung()
        begun = {} if first is None else first.changes
        try:
            rungs, stop = outlook(limited, lambda changes: self.plan_with({**begun, **changes}))
        except UnknownValueError as error:
            return (), f"the recovery steps are unknown: {error}"
        return rungs, stop.why

    def predicted_rung(self) -> Rung | None:
        """Return the first recovery step if the configured settings are predicted to fail and no
        known good settings exist; None otherwise."""
        recovery = self.deployment.recovery
        if self.as_configured or not self.recovers or recovery.policy != "budget":
            return None
        if self.known_good() is not None:
            return None
        found = predict_failure(recovery, self.plan_with)
        if found is not None and found.rung is not None:
            with contextlib.suppress(LaunchError):
                self.prepared.changed(found.rung.changes)
                return found.rung
        return None

    @property
    def attempts_allowed(self) -> int:
        return self.max_attempts or self.deployment.recovery.max_attempts

    def known_good(self) -> journal.LastGood | None:
        """Return the last known good settings for this recipe, engine and hardware. None if there
        are none, if `fresh` is set, if recovery is off, or if several ranks agree on settings."""
        shared = self.deployment.launch.agreement.directory is not None
        if self.fresh or shared or not self.recovers:
            return None  # ranks that agree share their known good settings
        return journal.recall(self._key)

    def start(self) -> PlannedLaunch:
        prepared, deployment = self.prepared, self.deployment
        known, announced = self._usable()
        rung = None if known else self.predicted_rung()
        if rung is not None:
            diff = " ".join(inputs.recipe_diff(rung.changes, deployment))
            announced = (
                f"as configured, {rung.why}",
                f"starting with {diff} ({rung.cost}); --force starts the recipe unchanged",
            )
        changes = known if rung is None else rung.changes
        rank, _ = nodes_of(deployment.args)
        return PlannedLaunch(
            name=deployment.name,
            version=prepared.version,
            address=prepared.address,
            model=prepared.model,
            directory=self.directory,
            locks=self._locks(),
            header=inputs.header(prepared, self.plan_with({}), self.facts.hardware, self.overrides),
            settings=without_model(deployment.launch),
            restarts=restarts(deployment.launch.restart, deployment.recovery),
            recovers=self.recovers,
            max_attempts=self.attempts_allowed,
            secrets=prepared.secrets,
            memory_key=self._key,
            changes=changes,
            rung=rung,
            announced=announced,
            first=self.command(changes),
            notes=tuple(prepared.rendered_args.notes),
            command_json=inputs.document(prepared),
            weight_bytes=(_weight_bytes(self.facts.target), _weight_bytes(self.facts.draft)),
            smoke=self.smoke,
            tiny=any(tiny_models(prepared)),
            exits_after=self.exits_after,
            writes_lock=self.lock is not None,
            stops_degraded=deployment.serving.on_degraded == "stop",
            on_degraded=self.on_degraded,
            worker=rank > 0,
            group=self._group(changes),
        )

    def _group(self, begin: Mapping[str, Any]) -> RankGroup | None:
        deployment, hardware = self.deployment, self.facts.hardware
        group = group_of(deployment.launch.agreement, deployment.args, os.environ)
        if group is None:
            return None
        # Exclude the exact memory size: it differs between hosts of one kind.
        machine = "" if hardware is None else f"{hardware.name}:{hardware.count}"
        return replace(
            group,
            key=f"{journal.settings_key(deployment, self.prepared.version, None)} {machine}",
            begin=begin,
            fresh=self.fresh or not self.recovers,
        )

    def command(self, changes: Mapping[str, Any]) -> EngineCommand:
        prepared = self.prepared.changed(changes)
        secrets_file = secrets_file_of(prepared, self.directory)
        args = prepared.recipe.deployment.args
        return EngineCommand(
            argv=tuple(engine_argv(prepared, secrets_file[0] if secrets_file else None)),
            env=engine_environment(prepared),
            rendered=prepared.rendered_args,
            secrets=prepared.secrets,
            secrets_file=secrets_file,
            shown_argv=tuple(inputs.command(prepared)),
            shown_env=inputs.environment(prepared),
            recipe_diff=tuple(inputs.recipe_diff(changes, self.deployment)),
            # An engine whose memory was released on purpose does not generate.
            watch=not value_of(args, "enable_memory_saver"),
        )

    def diagnose(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        from speclaunch.serving.launch.diagnosis.diagnose import diagnose  # noqa: PLC0415

        return diagnose(lines, version=version, exit_code=exit_code)

    def next_step(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        ladder = self.ladder()
        if ladder is None:
            return LadderEnd("recovery is off: no other settings are tried")
        try:
            return ladder(attempts)
        except UnknownValueError as error:
            return LadderEnd(f"the next recovery step is unknown: {error}")

    def write_lock(self, changes: Mapping[str, Any], accept_length: float | None) -> Path:
        """Write the lock of the deployment that served with these changes; return its path.

        `accept_length`: acceptance length of the first generation, if known. The request's
        certificates are included only if there are no changes. Raises LaunchError.
        """
        from speclaunch.deployments import LockedCertificate  # noqa: PLC0415  on request
        from speclaunch.serving.launch.lock import write_lock  # noqa: PLC0415

        assert self.lock is not None  # noqa: S101  requested
        found = () if changes else self.lock.certificates
        if accept_length is not None:
            found = (*found, LockedCertificate("smoke", accept_length=round(accept_length, 3)))
        request = replace(self.lock, certificates=found)
        return write_lock(self.prepared.changed(changes), self.plan_with(changes), request, changes)

    def _usable(self) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return the last known good settings and messages about them. Both are empty if there are
        none that the engine accepts."""
        known = self.known_good()
        if known is None:
            return {}, ()
        try:
            self.prepared.changed(known.changes)
        except LaunchError:
            journal.forget(self._key, known.changes)
            return {}, ()
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(known.since))
        diff = " ".join(inputs.recipe_diff(known.changes, self.deployment))
        return known.changes, (
            f"starting with the last known good settings ({when}, {known.run}): {diff}",
            "--fresh starts with the recipe's own settings",
        )

    @property
    def _key(self) -> str:
        return journal.settings_key(self.deployment, self.prepared.version, self.facts.hardware)

    def _locks(self) -> dict[str, str]:
        names = {
            f"run-{self.directory.name}": "this launch",
            f"port-{self.prepared.address.port}": f"port {self.prepared.address.port}",
        }
        hardware = self.facts.hardware
        if self.deployment.launch.share_gpus or hardware is None or hardware.vendor is Vendor.CPU:
            return names
        with contextlib.suppress(UnknownValueError):
            used = sorted(set(local_gpus(self.plan_with({}))))
            gpus = [hardware.gpus[gpu].index for gpu in used if gpu < len(hardware.gpus)]
            names |= {f"gpu-{index}": f"GPU {index}" for index in gpus}
        return names


def _weight_bytes(checkpoint: Checkpoint | None) -> int | None:
    return None if checkpoint is None else checkpoint.field_or_none("weight_bytes")


def restarts(settings: Restart, recovery: Recovery) -> bool:
    """True if an engine that ended while serving may be restarted."""
    if settings.policy == "auto":
        return recovery.policy != "off"
    return settings.policy == "on-failure"
