"""The catalogue of failures, by what they are about.

Its order matters within an error that several signatures fit: the first one wins, so the special
comes before the general.
"""

from __future__ import annotations

from speclaunch.launch.diagnosis.causes import (
    arguments,
    capture,
    drafts,
    files,
    kernels,
    network,
    pool,
    processes,
    serving,
    weights,
)
from speclaunch.launch.diagnosis.interface import Cause
from speclaunch.launch.diagnosis.signature import Known

CATALOGUE: tuple[Known, ...] = (
    *network.CAUSES,
    *pool.CAUSES,
    *drafts.CAUSES,
    *files.CAUSES,
    *kernels.CAUSES,
    *weights.CAUSES,
    *capture.CAUSES,
    *serving.CAUSES,
    *processes.CAUSES,
    *arguments.CAUSES,
)
BY_NAME: dict[str, Cause] = {known.cause.name: known.cause for known in CATALOGUE}
