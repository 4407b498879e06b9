"""Ranks that must agree, and this rank's number, from the recipe and the platform."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.core import LaunchError, expand_user
from speclaunch.engine import nodes_of, value_of

if TYPE_CHECKING:
    from speclaunch.deployments import Agreement

SERVER = "server"
"""Part name for a deployment of one server."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_JOB_HELP = "set launch.agreement.job to a name that is new for each run and the same on all ranks"


class RankGroup(Struct, frozen=True):
    """Ranks that must agree, and this rank's position among them."""

    directory: Path
    job: str
    part: str
    rank: int
    parts: Mapping[str, int]
    """Number of ranks of each server."""
    lease_seconds: float
    timeout_seconds: float
    key: str = ""
    """Digest of the launch; the same on all ranks of a part."""
    begin: Mapping[str, Any] = {}
    """Recipe changes with which this rank begins."""
    fresh: bool = False
    """True to ignore the last known good settings."""


def group_of(
    settings: Agreement, args: Mapping[str, Any], environment: Mapping[str, str]
) -> RankGroup | None:
    """Return the ranks that agree under `launch.agreement`; None if no agreement is needed. Raises
    LaunchError.
    """
    if settings.directory is None:
        return None
    directory = expand_user(settings.directory)
    if not directory.is_absolute():
        raise LaunchError(
            f"launch.agreement.directory: {settings.directory} is not an absolute path",
            help="name a directory that all hosts share",
        )
    rank, nodes = nodes_of(args)
    part = settings.part or _role(args)
    parts = dict(settings.parts) or {part: nodes}
    for name in parts:
        if not _NAME.match(name):
            raise LaunchError(
                f"launch.agreement.parts: {name!r} is not a valid name",
                help="use letters, digits, '-' and '_'",
            )
    if parts.get(part) != nodes:
        raise LaunchError(
            f"launch.agreement.parts: {part!r} has {parts.get(part, 0)} ranks, nnodes is {nodes}",
            help=f"set launch.agreement.part to this server, one of: {', '.join(parts)}",
        )
    job = settings.job or job_of(environment, alone=len(parts) == 1)
    if job is None:
        raise LaunchError("launch.agreement: the job is unknown", help=_JOB_HELP)
    return RankGroup(
        directory,
        _file_name(job),
        part,
        rank,
        parts,
        settings.lease_seconds,
        settings.timeout_seconds,
    )


def job_of(environment: Mapping[str, str], *, alone: bool) -> str | None:
    """Return the platform's name for this run, the same on all ranks.

    A job that Slurm requeues is a new run. A group of a LeaderWorkerSet has one name for all its
    runs; the directory shows which runs have ended. The name covers a single server, so it requires
    `alone`.
    """
    slurm = environment.get("SLURM_JOB_ID")
    if slurm:
        return f"slurm-{slurm}-{environment.get('SLURM_RESTART_COUNT') or 0}"
    leader = environment.get("LWS_LEADER_ADDRESS")
    if leader and alone:
        return f"lws-{leader}"
    return None


def _role(args: Mapping[str, Any]) -> str:
    mode = value_of(args, "disaggregation_mode")
    return mode if mode in ("prefill", "decode") else SERVER


def _file_name(job: str) -> str:
    """Return the job as a directory name; different jobs get different names."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", job)[:80]
    return plain if plain == job else f"{plain}-{hashlib.sha256(job.encode()).hexdigest()[:8]}"
