"""The options `--lock`, `--locked` and `--verify`: locks of launched and measured recipes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from speclaunch.app.output.console import err_lines
from speclaunch.checks import PreflightError
from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    LaunchError,
    Place,
    Problem,
    from_here,
)
from speclaunch.deployments import lock_and_recipe, of_this_host, prepare, split_recipe
from speclaunch.engine import find_runtime, resolve
from speclaunch.serving import (
    LockRequest,
    differences_now,
    ensure_cpu_models,
    lock_request,
    write_lock,
)

if TYPE_CHECKING:
    from speclaunch.app.verbs.run_options import BenchOptions, ProveOptions
    from speclaunch.app.verbs.start_options import LaunchOptions
    from speclaunch.checks import Lookup
    from speclaunch.deployments import Prepared, Recipe
    from speclaunch.measure import AnySide

Busy = Callable[[str], AbstractContextManager[None]]


class LaunchLock:
    """The lock that a launch writes (`--lock`), or that it must match (`--locked`)."""

    def __init__(self, options: LaunchOptions) -> None:
        """Raise InputError for options that cannot be combined."""
        self._options = options
        self._lock: Recipe | None = None
        self._source: Recipe | None = None
        self.request: LockRequest | None = None
        """Lock to write once the recipe has served; None without `--lock`."""
        if options.lock and not options.smoke:
            raise InputError("--lock needs --smoke, because a lock records settings that served")
        if options.lock and options.locked:
            raise InputError("--lock cannot be combined with --locked")
        if options.locked and options.force:
            raise InputError("--locked cannot be combined with --force")
        if not options.lock and not options.locked:
            raise InputError("--verify needs --lock or --locked")

    def chosen(self, recipe: Recipe, overrides: Sequence[str]) -> Recipe:
        """Return the recipe to start; with `--locked`, its lock as a recipe. Raises InputError."""
        if self._options.lock:
            self.request = lock_request(recipe, overrides, verify=self._options.verify)
            return recipe
        self._lock, self._source = lock_and_recipe(recipe, overrides, self._options.config_dir)
        return self._lock

    def prepare(self, recipe: Recipe, engine: str | None, *, dry_run: bool) -> Prepared:
        """Prepare `recipe`. Raises InputError, LaunchError.

        With `--locked`, a different engine is accepted, and `require` reports all differences.
        """
        try:
            prepared = prepare(recipe, engine, dry_run=dry_run)
        except LaunchError as error:
            if self._lock is None or engine is not None:
                raise
            try:
                installed = find_runtime(recipe.deployment.engine.python).sglang
            except LaunchError:
                raise error from None
            return prepare(recipe, installed, dry_run=dry_run)
        if self.request is not None:
            self.request = with_certificates(self.request, prepared)
        return prepared

    def overrides(self, overrides: list[str]) -> list[str]:
        """Return the overrides that repeat this launch.

        With `--locked`: the lock as recipe, and the user's overrides for this host.
        """
        if self._lock is None:
            return overrides
        return [f"recipe={self._lock.path}", *of_this_host(overrides)]

    def require(self, prepared: Prepared, facts: Lookup, busy: Busy) -> None:
        """Warn of differences from the lock. Raises PreflightError if any prevent a start."""
        lock = self._lock
        if lock is None or self._source is None:
            return
        ensure_cpu_models(prepared, busy)
        request = prepared.request(os.environ)
        plan = resolve(request, facts.facts(request))
        with busy("comparing with the lock"):
            found = differences_now(lock, self._source, prepared, plan, verify=self._options.verify)
        for difference in found:
            if not difference.refuses:
                err_lines().print(f"warning: {difference.message}", style="yellow")
        refusing = [difference.problem for difference in found if difference.refuses]
        if refusing:
            some = f"{len(refusing)} difference{'s' * (len(refusing) > 1)}"
            raise PreflightError(
                [
                    *refusing,
                    Problem(
                        f"{lock.deployment.name} was not started: {some} from "
                        f"{from_here(lock.path)}",
                        help="undo the differences, or lock the present settings: speclaunch "
                        f"recipe={_named(self._source)} --smoke --lock",
                    ),
                ]
            )


def _named(recipe: Recipe) -> str:
    return recipe.path.stem if recipe.is_shipped else from_here(recipe.path)


class SideLock:
    """The lock of a measured recipe, written after a valid measurement if `--lock` is set."""

    def __init__(self, options: BenchOptions | ProveOptions, side: AnySide) -> None:
        """Raise InputError if `--lock` is set but nothing can be locked."""
        self._side = side
        self._request: LockRequest | None = None
        if not options.lock:
            return
        prepared = getattr(side, "prepared", None)
        if prepared is None or options.dry_run:
            why = (
                "a running server has no recipe"
                if prepared is None
                else "--dry-run measures nothing"
            )
            place = Place(COMMAND_LINE, text="--lock")
            raise InputError(f"nothing to lock: {why}", place, "remove --lock")
        self._request = lock_request(prepared.recipe, split_recipe(options.overrides)[1])

    def write(self) -> None:
        """Write the lock with its certificates, if `--lock` is set. Raises LaunchError."""
        from speclaunch.measure import LaunchedSide

        if self._request is not None and isinstance(self._side, LaunchedSide):
            request = with_certificates(self._request, self._side.prepared)
            path = write_lock(self._side.prepared, self._side.plan, request)
            err_lines().print(f"locked: {from_here(path)}")


def with_certificates(request: LockRequest, prepared: Prepared) -> LockRequest:
    """Return the request with the stored certificates of the deployment."""
    from msgspec.structs import replace

    from speclaunch.measure import certificates_of

    return replace(request, certificates=certificates_of(prepared))
