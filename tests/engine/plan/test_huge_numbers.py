"""A slip of the keys in a number costs neither minutes nor gigabytes."""

from __future__ import annotations

import pytest

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.plan.settings import UnknownValueError
from speclaunch.engine.plan.topics.gpu import span
from speclaunch.engine.releases.argument import ArgumentKind
from speclaunch.engine.releases.catalogue import load

_WORDS = ["--model-path", "meta-llama/Llama-3.1-8B-Instruct", "--speculative-algorithm", "EAGLE"]
_HUGE = "99999999999"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.3", "0.5.9", "0.5.23"])
@pytest.mark.parametrize("hardware", [None, "h100:8"])
def test_every_whole_number(version: str, hardware: str | None) -> None:
    catalogue = load(version)
    facts = Facts(hardware=declare(hardware) if hardware else None)
    undecided: set[str] = set()
    for argument in catalogue.arguments.values():
        numbers = argument.type in ("int", "human_readable_int")
        if numbers and argument.kind in (ArgumentKind.VALUE, ArgumentKind.LIST):
            request = from_words([*_WORDS, argument.flag, _HUGE], {}, catalogue)
            undecided |= set(resolve(request, facts).undecided.values())
    assert hardware is None or any("too long" in why for why in undecided)


def test_as_many_sizes_as_an_engine_could_have() -> None:
    assert span(4, 12, 4) == [4, 8, 12]
    assert len(span(1, 1 << 16)) == 1 << 16
    with pytest.raises(UnknownValueError, match="a list of 65,537 CUDA graph sizes"):
        span(1, (1 << 16) + 1)
