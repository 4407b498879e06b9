"""What a certificate says beside its intervals: where it stops paying, costs, goodput, caveats."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from speclaunch.app.output.bench import certificate_markdown, single_markdown
from speclaunch.measure.bench.certificate import SINGLE_SENTENCE, certificate, single
from speclaunch.measure.bench.measurement import Objection, Round, SpeedClaim, bounds
from speclaunch.measure.bench.schema import CertificateDocument, SideMemory
from tests.support.loops import rows
from tests.support.measure.bench.making import PLAIN, a_round

PAYS, LOSES, UNCLEAR = 2.0, 0.5, 1.0
VARIABLE = "SGLANG_SIMULATE_ACC_LEN"


def cell(factor: float, concurrency: int, context: int = 0, prompt: int = 20) -> list[Round]:
    """Rounds at which R is `factor` times as fast."""
    at = {"concurrency": concurrency, "context": context}
    found = []
    for number in range(4):
        ours = a_round("R", number, 2.0 + 0.01 * number, prompt=prompt)
        theirs = a_round("plain", number, factor * 2.0, prompt=prompt, **PLAIN)
        found += [replace(ours, **at), replace(theirs, **at)]
    return found


def certified(*cells: list[Round], **given: object) -> CertificateDocument:
    rounds = tuple(one for each in cells for one in each)
    return certificate("R", "plain", rounds, (), **given)  # type: ignore[arg-type]


def told(found: CertificateDocument) -> list[tuple[str, int | None, int, str]]:
    return [
        (
            one.along,
            one.context if one.concurrency is None else one.concurrency,
            one.start,
            one.claim,
        )
        for one in found.stops_paying
    ]


def test_the_concurrency_from_which_on_it_does_not_pay() -> None:
    found = certified(cell(LOSES, 32), cell(PAYS, 1), cell(UNCLEAR, 8))
    assert told(found) == [
        ("concurrency", 0, 8, "not shown"),
        ("concurrency", 0, 32, "does not pay"),
    ]
    assert found.sentence == (
        "chat: it pays at concurrency 1; it does not pay at concurrency 32; a "
        "difference is not shown at concurrency 8. It is not shown to pay from "
        "concurrency 8 upward and it does not pay from concurrency 32 upward."
    )


def test_nothing_is_said_beyond_the_data() -> None:
    between = certified(cell(PAYS, 1), cell(LOSES, 8), cell(PAYS, 32))
    assert told(between) == []  # at the highest one it pays
    never = certified(cell(LOSES, 1), cell(LOSES, 8))
    assert told(never) == [("concurrency", 0, 1, "does not pay")]
    assert never.sentence == "chat: it does not pay at concurrency 1, 8."


def test_the_context_length_from_which_on_it_does_not_pay() -> None:
    found = certified(
        cell(LOSES, 1, 8000, 8000), cell(PAYS, 1, 2000, 2000), cell(PAYS, 1), cell(LOSES, 4)
    )
    assert [one.context for one in found.cells] == [8000, 2000, 0, 0]
    assert ("context", 1, 8000, "does not pay") in told(found)
    assert "At concurrency 1, it does not pay from prompts of 8000 tokens upward." in found.sentence
    assert "chat, prompts of 2000 tokens: it pays at concurrency 1." in found.sentence
    stop = found.stops_paying[-2]
    assert (stop.workload, stop.along, stop.concurrency, stop.start) == ("chat", "context", 1, 8000)


def test_prompts_as_they_are_stand_where_their_length_is() -> None:
    """Those of a file of long ones are longer than those that were asked for."""
    found = certified(cell(PAYS, 1, 2000, 2000), cell(LOSES, 1, 0, 9000))
    assert ("context", 1, 0, "does not pay") in told(found)
    assert "from unchanged prompts upward" in found.sentence


@rows(
    "factor, sides, claim",
    [
        (PAYS, ["R"], SpeedClaim.NOT_SHOWN),
        (LOSES, ["R"], SpeedClaim.DOES_NOT_PAY),
        (UNCLEAR, ["R"], SpeedClaim.NOT_SHOWN),
        (PAYS, ["plain"], SpeedClaim.NOT_SHOWN),
        (LOSES, ["plain"], SpeedClaim.NOT_SHOWN),
        (LOSES, ["R", "plain"], SpeedClaim.NOT_SHOWN),
        (PAYS, [], SpeedClaim.PAYS),
    ],
)
def test_made_up_acceptance_is_never_claimed_to_pay(
    factor: float, sides: list[str], claim: SpeedClaim
) -> None:
    found = certified(cell(factor, 1), simulated=dict.fromkeys(sides, VARIABLE))
    assert (found.claim, found.cells[0].claim) == (claim, claim)
    said = [f"{side}: {VARIABLE} simulates acceptance; outputs are invalid" for side in sides]
    assert list(found.caveats) == said


def test_goodput_is_compared_pair_by_pair() -> None:
    found = certified(cell(PAYS, 1), goodput_within=bounds("e2el=2000"))
    goodput = found.cells[0].goodput
    assert goodput is not None
    assert goodput.ratio is not None
    assert goodput.baseline == pytest.approx(1.0)  # 4 requests in 4 seconds
    assert goodput.ratio.ratio == pytest.approx(found.cells[0].speed_up.ratio)
    assert found.goodput_within == {"e2el": 2000.0}
    assert found.cells[0].baseline.goodput == pytest.approx(1.0)
    assert goodput.candidate_share == 1.0


def test_goodput_of_nothing_has_no_ratio() -> None:
    rounds = cell(PAYS, 1)
    slow = replace(rounds[1].requests[0], latency=9.0)
    rounds[1] = replace(rounds[1], requests=(slow,) * 4)
    found = certified(rounds, goodput_within=bounds("e2el=2000"))
    goodput = found.cells[0].goodput
    assert goodput is not None
    assert (goodput.ratio, goodput.baseline_share) == (None, 0.75)
    assert "| - |" in certificate_markdown(found)


def test_goodput_widens_the_intervals_that_hold_together() -> None:
    plain = certified(cell(PAYS, 1)).cells[0].speed_up
    wider = certified(cell(PAYS, 1), goodput_within=bounds("e2el=2000")).cells[0].speed_up
    assert wider.high - wider.low > plain.high - plain.low


@pytest.mark.parametrize(
    "ours",
    [61440, None],
)
def test_the_cost_in_tokens(ours: int | None) -> None:
    memory = [
        SideMemory(side="plain", max_total_num_tokens=65536, bytes=None),
        SideMemory(side="R", max_total_num_tokens=ours, bytes=5 << 30, bytes_measured="engine"),
    ]
    found = certified(cell(PAYS, 1), memory=memory)
    sides = [(one.side, one.max_total_num_tokens) for one in found.memory]
    assert sides == [("R", ours), ("plain", 65536)]


def test_one_side_alone_claims_nothing() -> None:
    rounds = [one for one in cell(PAYS, 1, 500) if one.side == "R"]
    said = single("R", rounds, (), simulated={}, goodput_within=bounds("ttft=200"))
    assert (said.claim, said.baseline, said.sentence) == (None, None, SINGLE_SENTENCE)
    (only,) = said.cells
    assert only.context == 500
    assert only.candidate.accept_length == pytest.approx(3.2)
    assert only.candidate.goodput == pytest.approx(4 / 2.015, rel=0.01)
    assert "Only one server was measured" in single_markdown(said)


def test_one_side_alone_in_markdown_escapes_what_it_quotes() -> None:
    rounds = [one for one in cell(PAYS, 1, 4096) if one.side == "R"]
    hostile = replace(
        single("R", rounds, (), simulated={}),
        candidate="*R* | @you",
        caveats=("<b>",),
        sentence="[a](b)",
    )
    said = single_markdown(hostile)
    assert said.startswith("**\\*R\\* \\| @\N{ZERO WIDTH NON-JOINER}you**\n\nNote: \\<b\\>\n")
    assert "| chat | 4,096 | 1 |" in said and said.endswith("\\[a\\](b)\n")
    refused = replace(hostile, counts=False, objections=(Objection("errors", "*it* failed"),))
    assert "- \\*it\\* failed" in single_markdown(refused)
