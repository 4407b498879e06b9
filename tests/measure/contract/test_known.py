"""What is known of a difference: statements of the engine, and advisories."""

from __future__ import annotations

import pytest

from speclaunch.checks import RequestField
from speclaunch.engine import Facts, Plan, resolve
from speclaunch.measure.prove.contract import known_bugs, statement
from tests.support.checks.rules.harness import request_of
from tests.support.loops import rows

LIMIT, PENALTIES = RequestField.MAX_TOKENS, RequestField.PENALTIES


def plan(version: str, algorithm: str) -> Plan:
    args = {"model_path": "m", "speculative_algorithm": algorithm}
    return resolve(request_of(args, None, {}, version), Facts())


@rows(
    "concern, release, algorithm, expected",
    [
        (PENALTIES, "0.5.23", "EAGLE", ("SPA-2026-0002",)),
        (PENALTIES, "0.5.13.post1", "NGRAM", ("SPA-2026-0027",)),
        (PENALTIES, "0.5.23", "DFLASH", ("SPA-2026-0003",)),
        (LIMIT, "0.5.17", "STANDALONE", ("SPA-2026-0006",)),
        (LIMIT, "0.5.18", "STANDALONE", ()),
        (RequestField.N, "0.5.17", "STANDALONE", ()),
    ],
)
def test_advisories_of_a_release_and_an_algorithm(
    concern: RequestField, release: str, algorithm: str, expected: tuple[str, ...]
) -> None:
    found = known_bugs(concern, plan(release, algorithm))
    assert set(expected) <= set(found)
    assert bool(expected) == bool(found)


@pytest.mark.parametrize(
    ("field", "release", "algorithm", "device", "stated"),
    [
        ("frequency_penalty", "0.5.23", "EAGLE3", "cuda", True),
        ("frequency_penalty", "0.5.10.post1", "EAGLE3", "cuda", False),
        ("frequency_penalty", "0.5.13.post1", "NGRAM", "cuda", False),
        ("frequency_penalty", "0.5.23", "DFLASH", "cuda", False),
        ("min_new_tokens", "0.5.23", "EAGLE", "cuda", False),
        ("temperature", "0.5.23", "EAGLE", "cpu", True),
        ("temperature", "0.5.23", "EAGLE", "cuda", False),
        ("temperature", "0.5.20", "EAGLE", "cpu", False),
    ],
)
def test_statements_of_the_engine(
    field: str, release: str, algorithm: str, device: str, *, stated: bool
) -> None:
    found = statement(field, release, algorithm, device)
    assert bool(found) == stated
    assert found is None or "SGLang 0.5.23 srt/speculative/eagle_utils.py" in found
