"""Checks of a sweep's jobs before any runs: jobs that cannot serve are never started."""

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
from speclaunch.serving import absent_paths, local_lookup, preflight


def check_jobs(
    jobs: Sequence[SweepJob],
    options: JobOptions,
    found: Lookup,
    rules: Sequence[Rule],
    *,
    local: bool,
    launches: bool = True,
) -> tuple[Job, ...]:
    """Return each job with its key, and the reason if the job will not be started.

    `local`: the jobs run on this machine, with its engine and hardware; otherwise the recipe and
    the options set both. `launches`: the jobs start next and may run a recipe's interpreter. Raises
    InputError for a secret in the overrides, because files store overrides.
    """
    for job in jobs:
        secret = next((override for override in job.overrides if _tells_a_secret(override)), None)
        if secret is not None:
            key = secret.partition("=")[0]
            raise InputError(
                Problem(
                    f"{key} is a secret; a sweep stores its arguments in files",
                    help=f"read it from a variable: {key}='${{oc.env:NAME}}'",
                )
            )
    return tuple(
        _checked(job, options, found, rules, local=local, launches=launches) for job in jobs
    )


def _tells_a_secret(override: str) -> bool:
    key, _, value = override.partition("=")
    return (is_secret_key(key) or holds_secret(value)) and "oc.env:" not in value.replace("\\", "")


def _checked(
    job: SweepJob,
    options: JobOptions,
    found: Lookup,
    rules: Sequence[Rule],
    *,
    local: bool,
    launches: bool,
) -> Job:
    starts = local and not options.plan
    folders = tuple(Path(name) for name in options.config_dir)
    try:
        recipe = load(job.recipe, job.overrides, folders)
        prepared = prepare(recipe, options.engine, dry_run=not starts, launches=launches)
    except SpeclaunchError as error:
        return _job(job, _digest([job.recipe, *job.overrides], options), str(error))
    key = _digest([prepared.recipe.deployment, prepared.version, prepared.python], options)
    facts = local_lookup(found, recipe, probe=local, cpu=bool(prepared.cpu))
    absent = absent_paths(prepared) if starts else []
    result = preflight(prepared, facts, rules, absent)
    reasons = [
        f"{finding.code} {finding.message}"
        for finding in result.findings
        if finding.severity is Severity.ERROR
    ]
    reasons += [problem.message for problem in result.absent]
    return _job(job, key, "; ".join(reasons) or None)


def _job(job: SweepJob, key: str, refused: str | None) -> Job:
    return Job(job.recipe, job.overrides, job.varied, key, refused)


def _digest(parts: Sequence[Any], options: JobOptions) -> str:
    text = json.dumps([parts, options.identity()], sort_keys=True, default=_parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parts(value: Any) -> Any:
    """Return a deployment's section, plain or validated, without descriptions."""
    names = getattr(type(value), "model_fields", None)
    if names is None:
        return str(value)
    return {name: getattr(value, name) for name in names if name != "description"}
