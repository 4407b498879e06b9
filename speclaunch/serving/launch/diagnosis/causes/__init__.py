"""Catalogue of failures, by topic.

Its order matters: if several signatures match an error, the first wins, so specific signatures
precede general ones.
"""

from __future__ import annotations

from speclaunch.serving.launch.diagnosis.causes.engine import ARGUMENTS, SERVING
from speclaunch.serving.launch.diagnosis.causes.machine import KERNELS, NETWORK, PROCESSES
from speclaunch.serving.launch.diagnosis.causes.memory import GRAPHS, POOL, WEIGHTS
from speclaunch.serving.launch.diagnosis.causes.models import DRAFTS, FILES
from speclaunch.serving.launch.diagnosis.interface import Cause, KnownCause

CATALOGUE: tuple[KnownCause, ...] = (
    *NETWORK,
    *POOL,
    *DRAFTS,
    *FILES,
    *KERNELS,
    *WEIGHTS,
    *GRAPHS,
    *SERVING,
    *PROCESSES,
    *ARGUMENTS,
)
BY_NAME: dict[str, Cause] = {known.cause.name: known.cause for known in CATALOGUE}
