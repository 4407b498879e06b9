"""The port that the engine would listen on."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.processes import Custody, engines, may_end
from speclaunch.doctor.surroundings import Port, Surroundings
from speclaunch.facts.facts import UnknownFact


def check(found: Surroundings) -> Iterator[Line]:
    """One line: it is free, or who has it."""
    port = found.port
    if isinstance(port, UnknownFact):
        yield Line("port", State.UNKNOWN, f"it cannot be told: {port.why}")
        return
    where = f"{port.host}:{port.number}"
    if port.refused is None:
        yield Line("port", State.OK, f"{where} is free")
        return
    recipe = found.target is not None
    fix, command = _fix(found, port)
    yield Line(
        "port",
        State.ERROR if recipe else State.NOTE,
        port.refused,
        "the engine would load everything, and then hang without listening"
        if recipe
        else "an engine's own choice, unless another is given",
        fix,
        command,
    )


def _fix(found: Surroundings, port: Port) -> tuple[str, bool]:
    if port.holder is not None and not isinstance(found.processes, UnknownFact):
        for tree in engines(found.processes):
            pids = [member.pid for member in tree.members]
            if port.holder not in pids or not all(may_end(m, found.user) for m in tree.members):
                continue
            if tree.custody is Custody.LEFT_OVER:
                return f"kill {' '.join(map(str, pids))}", True
    if port.free is None:
        return "choose another address: args.host=…, args.port=…", False
    taken = "; or stop what holds it" if "in use" in (port.refused or "") else ""
    return f"choose another port: args.port={port.free}{taken}", False
