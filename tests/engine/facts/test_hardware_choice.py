"""Which hardware counts: what is given, what the recipe names, what this machine has."""

from __future__ import annotations

from speclaunch.engine.facts.engines import choose_hardware
from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.hardware import AUTO, Hardware, declare
from tests.support.loops import rows

HERE = declare("a100-40gb")
NOTHING = UnknownFact("the GPUs", "no driver answers")


@rows(
    "given, named, machine, here_first, chosen",
    [
        ("h100:8", "h200", HERE, False, "h100:8"),
        ("h100:8", "h200", HERE, True, "h100:8"),
        (None, "h200", HERE, False, "h200"),
        (None, "h200", HERE, True, "a100-40gb"),
        (None, "h200", NOTHING, True, "h200"),
        (None, "h200", None, False, "h200"),
        (None, AUTO, HERE, False, "a100-40gb"),
        (None, AUTO, NOTHING, False, None),
        (None, AUTO, None, False, None),
    ],
)
def test_the_order(
    given: str | None,
    named: str,
    machine: Hardware | UnknownFact | None,
    here_first: bool,
    chosen: str | None,
) -> None:
    declared = declare(given) if given is not None else None
    if machine is None:
        found = choose_hardware(declared, named, None, here_first=here_first)
    else:
        found = choose_hardware(declared, named, lambda: machine, here_first=here_first)
    assert found.hardware == (None if chosen is None else declare(chosen))
    assert found.unknown is (NOTHING if machine is NOTHING and chosen is None else None)


def test_the_cpu_engine_runs_on_a_cpu() -> None:
    assert choose_hardware(None, AUTO, None, cpu=True).hardware == declare("cpu")
    probed = choose_hardware(None, AUTO, lambda: HERE, cpu=True).hardware
    assert probed is not None and probed.name == "cpu" and probed.gpus
