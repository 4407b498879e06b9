"""A recipe served by a release, from its start to the end of a block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from speclaunch.checks import Lookup
from speclaunch.core import LaunchError, beating, duration
from speclaunch.engine import Address, Plan, canonical, resolve
from speclaunch.measure.bench.engines import EngineOrder, MeasuredEngine, next_log
from speclaunch.measure.bench.sides import with_overrides
from speclaunch.measure.prove.proof import served_dtype
from speclaunch.measure.upgrade.observation import ObservedServer
from speclaunch.measure.upgrade.release_recipe import ReleaseRecipe
from speclaunch.serving import free_port, local_lookup

_UNCHANGED = ("--fresh", "--max-attempts=1", "--force")
"""Options of a launch that starts exactly the recipe's settings, and starts them once."""
_UNATTENDED = ("launch.watchdog.enabled=false", "launch.restart.policy=never")
_DYING_SECONDS = 10.0

Say = Callable[[str], None]


class StartFailedError(LaunchError):
    """A release that does not serve."""


class LaunchedRelease(Struct, frozen=True):
    """A serving release. `seconds`: from its start until it was verified."""

    release: str
    engine: MeasuredEngine
    address: Address
    plan: Plan
    observed: ObservedServer
    seconds: float
    can_run_twice: bool
    """True if a server without speculation fits next to it: on the CPU engine."""

    def is_gone(self) -> bool:
        """True if its engine ended, or ends within a few seconds."""
        until = time.monotonic() + _DYING_SECONDS
        while self.engine.lives and time.monotonic() < until:
            time.sleep(0.1)
        return not self.engine.lives


@contextmanager
def launched(
    found: ReleaseRecipe,
    folder: Path,
    seconds: float,
    say: Say,
    *,
    speculates: bool = True,
) -> Iterator[LaunchedRelease]:
    """Serve a recipe within the block, and stop it at the end.

    `folder` receives the log and a changed recipe. `speculates`: False for the same server without
    speculation. Raises InputError if the release does not support the recipe, and LaunchError if it
    does not serve within `seconds` (StartFailedError).
    """
    prepared = found.prepared()
    args = prepared.recipe.deployment.args
    off = [f"args.{name}=null" for name in args if canonical(name).startswith("speculative_")]
    port = free_port()
    changes = (f"args.port={port}", *_UNATTENDED, *(() if speculates else off))
    words = (*with_overrides(found.words(folder), changes), *_UNCHANGED)
    name = f"SGLang {found.version}{'' if speculates else ' without speculation'}"
    key = prepared.address.api_key
    engine = MeasuredEngine(EngineOrder(name, words, port, key=key), next_log(folder))
    try:
        with beating(say, lambda waited: f"{name}: starting for {duration(waited)}"):
            try:
                taken = engine.wait(seconds)
            except LaunchError as error:
                problem = error.problems[0]
                why = (problem.help or "").removeprefix(f"see {engine.log}: ")
                raise StartFailedError(why or problem.message, help=f"see {engine.log}") from error
        request = prepared.request({})
        facts = local_lookup(
            Lookup(), prepared.recipe, probe=prepared.cpu is None, cpu=prepared.cpu is not None
        ).facts(request)
        plan = resolve(request, facts)
        address = Address(host="127.0.0.1", port=port, tls=False, api_key=key)
        observed = ObservedServer(address, served_dtype(plan))
        can_run_twice = prepared.cpu is not None and bool(off) and speculates
        yield LaunchedRelease(found.version, engine, address, plan, observed, taken, can_run_twice)
    finally:
        engine.stop()
