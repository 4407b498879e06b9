"""The request contract of two servers: every field checked in turn."""

from __future__ import annotations

from collections.abc import Callable

from speclaunch.engine import Plan
from speclaunch.measure.contract.records import Contract
from speclaunch.measure.contract.servers import ContractServer


def check_contract(
    speculative: ContractServer,
    plain: ContractServer,
    *,
    plan: Plan | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Contract:
    """Return the contract of two running servers of one release and checkpoint.

    `plan` of the speculative server selects advisories by its exact configuration; without it they
    match by release and algorithm. `say` receives the name of each field before its check. Raises
    EngineError if the plain server gives no answer.
    """
    raise NotImplementedError
