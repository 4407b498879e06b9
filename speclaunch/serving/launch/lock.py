"""Record, write and compare locks of the engine that serves on this machine."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import PreflightError, all_rules, check_plan
from speclaunch.core import (
    HIDDEN,
    InputError,
    LaunchError,
    Redactor,
    from_here,
    is_secret_variable,
    json_value,
    lazy,
    read_regular,
    replace_file,
)
from speclaunch.deployments import (
    Lock,
    LockDifference,
    LockedCertificate,
    LockedCheckpoint,
    LockedEngine,
    LockedHardware,
    LockSubject,
    Prepared,
    Recipe,
    from_recipe,
    image_of,
    lock_differences,
    lock_text,
    read_lock,
    recipe_differences,
    record,
    shown_overrides,
)
from speclaunch.engine import (
    ArgumentOutcome,
    Checkpoint,
    Plan,
    effective_arguments,
    find_checkpoint,
    hash_files,
    read_distributions,
    render_args,
    resolve,
    revision_of_files,
)
from speclaunch.serving.launch.inputs import engine_environment

_CHECKPOINTS = {
    "target": ("model_path", "revision"),
    "draft": ("speculative_draft_model_path", "speculative_draft_model_revision"),
    "tokenizer": ("tokenizer_path", "revision"),
    "token map": ("speculative_token_map", None),
}
_KNOWN = (ArgumentOutcome.ACCEPTED, ArgumentOutcome.FILLED, ArgumentOutcome.CHANGED)
_REFERENCE = lazy(r"\$\{oc\.env:\w+\}", re.ASCII)
_UNWRITTEN = "remove it, or rename the recipe's file"


class LockRequest(Struct, frozen=True):
    """Lock file to write, with the overrides and certificates to store in it."""

    path: Path
    overrides: tuple[str, ...] = ()
    """Overrides of the recipe, without secrets."""
    certificates: tuple[LockedCertificate, ...] = ()
    verify: bool = False
    """True to hash all weight files again, instead of reusing stored hashes."""


def lock_request(
    recipe: Recipe,
    overrides: Sequence[str],
    *,
    certificates: Sequence[LockedCertificate] = (),
    verify: bool = False,
) -> LockRequest:
    """Return the request to lock a recipe or one of its roles.

    Raises InputError if the recipe is itself a lock, or if its lock would replace another file.
    """
    path = recipe.lock_path
    if recipe.deployment.lock is not None or path == recipe.path:
        raise InputError(
            f"{from_here(recipe.path)} is itself a lock",
            help="lock the recipe instead: recipe="
            + (recipe.deployment.lock.recipe if recipe.deployment.lock else "NAME"),
        )
    if path.exists() or path.is_symlink():
        try:
            read_lock(path)
        except InputError as error:
            message = f"{from_here(path)} is not a lock: {error}"
            raise InputError(message, help=_UNWRITTEN) from error
    words = zip(overrides, shown_overrides(overrides), strict=True)
    stored = (word if word == shown else _with_reference(word) for word, shown in words)
    return LockRequest(path, tuple(filter(None, stored)), tuple(certificates), verify)


def _with_reference(word: str) -> str | None:
    """Return override `word` with its secret replaced by a reference to a variable; None unless its
    key is in `args` or `engine.env`."""
    key, _, value = word.partition("=")
    section, _, name = key.lstrip("+").rpartition(".")
    if _REFERENCE.fullmatch(value):
        return word
    variable = {"args": name.upper(), "engine.env": name}.get(section)
    return None if variable is None else f"{key}=${{oc.env:{variable}}}"


def write_lock(
    prepared: Prepared, plan: Plan, request: LockRequest, steps: Mapping[str, Any] | None = None
) -> Path:
    """Write the lock of a deployment that served, and return its path.

    `steps`: recovery changes that `prepared` and `plan` include. The written text is checked: it
    must start the same engine, and rules must find no new error. Raises LaunchError or
    PreflightError without changing a file.
    """
    lock = observe(prepared, plan, request, steps)
    text = Redactor(prepared.secrets).text(lock_text(prepared, lock, request.path))
    _require_same(prepared, plan, text, request.path.name)
    try:
        replace_file(request.path, text, 0o666)
    except OSError as error:
        message = f"cannot write {from_here(request.path)}: {error.strerror}"
        raise LaunchError(message, help="run the command in a writable directory") from error
    return request.path


def observe(
    prepared: Prepared, plan: Plan, request: LockRequest, steps: Mapping[str, Any] | None = None
) -> Lock:
    """Return the lock of a deployment as it runs on this machine. Raises LaunchError."""
    recipe = prepared.recipe
    python, packages = read_distributions(Path(prepared.python))
    return Lock(
        recipe=recipe.path.stem if recipe.is_shipped else recipe.path.name,
        role=recipe.role,
        overrides=request.overrides,
        steps=dict(steps or {}),
        resolved=dict(_resolved(plan)),
        variables={
            name: str(item.value)
            for name, item in sorted(plan.request.env.items())
            if name not in recipe.deployment.engine.env and not is_secret_variable(name)
        },
        engine=LockedEngine(prepared.version, python, packages),
        checkpoints=tuple(_checkpoints(prepared, verify=request.verify)),
        hardware=_hardware(plan),
        image=image_of(recipe),
        certificates=request.certificates,
    )


def _resolved(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield each argument that the user or engine sets, with its effective value; no secrets."""
    for row in sorted(effective_arguments(plan), key=lambda row: row.name):
        value = json_value(row.effective)
        if row.outcome in _KNOWN and value is not None and HIDDEN not in str(value):
            yield row.name, value


def _checkpoints(prepared: Prepared, *, verify: bool) -> Iterator[LockedCheckpoint]:
    """Yield the checkpoints that the engine reads, with file hashes if they are on this machine."""
    environment = engine_environment(prepared)
    for role, (argument, revision_argument) in _CHECKPOINTS.items():
        name = prepared.rendered_args.value(argument)
        if name is None:
            continue
        revision = prepared.rendered_args.value(revision_argument) if revision_argument else None
        path, known = Path(name).expanduser(), None
        if not path.exists():
            found = find_checkpoint(str(name), revision=revision, environment=environment)
            if not isinstance(found, Checkpoint) or found.origin is None:
                yield LockedCheckpoint(role, str(name))
                continue
            path = Path(found.origin.where)
        if path.is_dir():
            known = revision_of_files(path)
        yield LockedCheckpoint(role, str(name), known, hash_files(path, verify=verify))


def _hardware(plan: Plan) -> LockedHardware | None:
    found = plan.facts.hardware
    if found is None:
        return None
    return LockedHardware(
        found.name,
        found.count,
        found.memory_mib,
        found.capability,
        found.driver,
        _processor(),
        os.cpu_count(),
        round(psutil.virtual_memory().total / (1 << 30)),
        f"{platform.system()} {platform.release()} {platform.machine()}",
    )


def _processor() -> str | None:
    try:
        text = read_regular("/proc/cpuinfo", 1 << 16).decode("utf-8", "replace")
    except OSError:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == "model name"), None)


def _require_same(prepared: Prepared, plan: Plan, text: str, name: str) -> None:
    """Raise LaunchError unless the lock's text starts the same engine. Raise PreflightError if
    rules find an error in the lock that they do not find in the deployment."""
    with tempfile.TemporaryDirectory(prefix="speclaunch-") as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        locked = read_lock(path)
    deployment, catalogue = locked.deployment, prepared.catalogue
    rendered = render_args(deployment.args, deployment.engine.env, catalogue)
    hidden = {item.flag for item in prepared.rendered_args.arguments if item.secret}
    before, after = (
        [(item.flag, None if item.flag in hidden else item.values) for item in some.arguments]
        for some in (prepared.rendered_args, rendered)
    )
    if before != after or rendered.env.keys() != prepared.rendered_args.env.keys():
        raise LaunchError(
            f"the lock was not written: reading it back changes the engine ({before} → {after})",
            help="this is a bug in speclaunch: report it",
        )
    again = resolve(from_recipe(locked, rendered, catalogue, os.environ), plan.facts)
    known = {finding.code for finding in check_plan(plan, all_rules()).results.errors}
    new = [e for e in check_plan(again, all_rules()).results.errors if e.code not in known]
    if new:
        raise PreflightError(f"the lock was not written: {new[0].code} {new[0].message}")


def differences_now(
    lock: Recipe, recipe: Recipe, prepared: Prepared, plan: Plan, *, verify: bool = False
) -> tuple[LockDifference, ...]:
    """Return the differences between a lock and the recipe on this machine.

    `prepared` and `plan`: the lock's deployment as it would start now. Raises LaunchError.
    """
    found = list(recipe_differences(recipe, lock))
    now = observe(prepared, plan, LockRequest(lock.path, verify=verify))
    now = replace(now, image=image_of(recipe))
    for difference in lock_differences(record(lock), now):
        if difference.subject is not LockSubject.RESOLVED or difference.name not in plan.undecided:
            found.append(difference)
    return tuple({(d.subject, d.name): d for d in reversed(found)}.values())[::-1]
