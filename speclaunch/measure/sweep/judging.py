"""The jobs of a sweep, judged before any of them runs: what cannot serve is never started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speclaunch.checks import Lookup, Rule, Severity
from speclaunch.core import InputError, Problem, SpeclaunchError, holds_secret
from speclaunch.deployments import SweepJob, load, prepare
from speclaunch.engine import is_secret_key
from speclaunch.measure.sweep.jobs import Job, JobOptions
from speclaunch.serving import absent_paths, here, preflight


def judged_jobs(
    jobs: Sequence[SweepJob],
    options: JobOptions,
    found: Lookup,
    rules: Sequence[Rule],
    *,
    local: bool,
    launches: bool = True,
) -> tuple[Job, ...]:
    """Each job with its key, and why it will not be started.

    `local`: the jobs run on this machine, whose engine and hardware count; else what the recipe
    and the options say. `launches`: they start next, and may run the interpreter that a recipe
    names. Raises InputError for a secret among the words: they are kept in files.
    """
    for job in jobs:
        secret = next((one for one in job.overrides if _tells_a_secret(one)), None)
        if secret is not None:
            key = secret.partition("=")[0]
            raise InputError(
                Problem(
                    f"{key} is a secret, and a sweep writes its words down",
                    help=f"take it from a variable: {key}='${{oc.env:NAME}}'",
                )
            )
    return tuple(
        _judged(job, options, found, rules, local=local, launches=launches) for job in jobs
    )


def _tells_a_secret(override: str) -> bool:
    key, _, value = override.partition("=")
    return (is_secret_key(key) or holds_secret(value)) and "oc.env:" not in value.replace("\\", "")


def _judged(
    job: SweepJob,
    options: JobOptions,
    found: Lookup,
    rules: Sequence[Rule],
    *,
    local: bool,
    launches: bool,
) -> Job:
    starts = local and not options.plan
    folders = tuple(Path(one) for one in options.config_dir)
    try:
        recipe = load(job.recipe, job.overrides, folders)
        prepared = prepare(recipe, options.engine, dry_run=not starts, launches=launches)
    except SpeclaunchError as error:
        return _job(job, _digest([job.recipe, *job.overrides], options), str(error))
    key = _digest([prepared.recipe.deployment, prepared.version, prepared.python], options)
    facts = here(found, recipe, probe=local, cpu=bool(prepared.cpu))
    absent = absent_paths(prepared) if starts else []
    result = preflight(prepared, facts, rules, absent)
    said = [
        f"{one.code} {one.message}" for one in result.findings if one.severity is Severity.ERROR
    ]
    said += [problem.message for problem in result.absent]
    return _job(job, key, "; ".join(said) or None)


def _job(job: SweepJob, key: str, refused: str | None) -> Job:
    return Job(job.recipe, job.overrides, job.varied, key, refused)


def _digest(parts: Sequence[Any], options: JobOptions) -> str:
    said = json.dumps([parts, options.identity()], sort_keys=True, default=_parts)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _parts(value: Any) -> Any:
    """A section of a deployment, plain or judged by the schema: its keys without its prose."""
    names = getattr(type(value), "model_fields", None)
    if names is None:
        return str(value)
    return {name: getattr(value, name) for name in names if name != "description"}
