"""The request contract of a recipe: both servers started, compared and stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import to_builtins

from speclaunch.core import LaunchError, beating, duration, speclaunch_home
from speclaunch.engine import Address
from speclaunch.measure.bench.engines import MeasuredEngine, next_log
from speclaunch.measure.bench.sides import LaunchedSide
from speclaunch.measure.contract.contract import FIELDS, check_contract
from speclaunch.measure.contract.records import Contract
from speclaunch.measure.contract.servers import ContractServer
from speclaunch.serving import EngineClient, EngineError, free_port, unfinished_work

_START_SECONDS = 3600.0
_FILE = "contract.json"

Say = Callable[[str], None]


def new_contract_folder(name: str) -> Path:
    """Create the folder of a contract's result and logs. Raises InputError."""
    return unfinished_work.new_folder(speclaunch_home() / "contracts", name)


def check_sides(ours: LaunchedSide, plain: LaunchedSide, folder: Path, say: Say) -> Contract:
    """Return the contract of two launched sides, and write it to `folder`.

    Both servers run at the same time and are stopped at the end; `folder` receives their logs.
    `say` receives progress messages. Raises LaunchError if a server does not start, or the plain
    server gives no answer.
    """
    with ExitStack() as stack:
        servers = [_started(side, folder, say, stack) for side in (ours, plain)]
        fields: list[str] = []

        def progress(seconds: float) -> str:
            done = f"{max(len(fields) - 1, 0)} of {len(FIELDS)} fields"
            return f"{ours.name}: {done} checked in {duration(seconds)}"

        stack.enter_context(beating(say, progress))
        try:
            found = check_contract(*servers, plan=ours.plan, say=fields.append)
        except EngineError as error:
            help_ = f"read the logs in {folder}"
            raise LaunchError(f"{ours.name} gave no answer: {error}", help=help_) from error
    document = found.document(ours.name, plain.name)
    unfinished_work.write(folder / _FILE, to_builtins(document))
    return found


def _started(side: LaunchedSide, folder: Path, say: Say, stack: ExitStack) -> ContractServer:
    """Start a side within the stack and wait until it serves: one at a time, because the memory
    of the second depends on what the first leaves."""
    say(f"starting {side.name}")
    engine = MeasuredEngine(side.order(free_port()), next_log(folder))
    stack.callback(engine.stop)
    with beating(say, lambda seconds: f"{side.name}: starting for {duration(seconds)}"):
        seconds = engine.wait(_START_SECONDS)
    say(f"{side.name} serves after {seconds:.0f} s")
    key = side.prepared.address.api_key
    address = Address(host="127.0.0.1", port=engine.order.port, tls=False, api_key=key)
    return ContractServer(lambda: EngineClient(address))
