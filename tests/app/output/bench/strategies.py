"""Certificates with any names and any numbers that the schema allows."""

from __future__ import annotations

from hypothesis import strategies as st

from speclaunch.measure.bench.schema import (
    CellRecord,
    CertificateDocument,
    GoodputRecord,
    Interval,
    NumbersRecord,
    Objection,
    QuantilesRecord,
    SideMemory,
    SideRecord,
)

SHARES = (0.0, 0.25, 0.5, 0.9, 0.99, 1.0)
CLAIMS = ("pays", "does not pay", "not shown")
NAMES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["<script>alert(1)</script>", "a|b", "\"' onload='x", "</style>", "`x`", "@you"]
    ),
)
TIMES = st.one_of(st.floats(0, 1e15), st.sampled_from([0.0, 5e-324, 1e15]), st.floats(0.001, 10))
SPEEDS = st.one_of(st.floats(1e-300, 1e15), st.floats(1, 1000))
RATIOS = st.one_of(st.floats(1e-300, 1e300), st.floats(0.5, 2))


@st.composite
def _interval(draw: st.DrawFn) -> Interval:
    low, ratio, high = sorted(draw(st.lists(RATIOS, min_size=3, max_size=3)))
    return Interval(ratio=ratio, low=low, high=high, pairs=draw(st.integers(3, 50)))


@st.composite
def _numbers(draw: st.DrawFn, rounds: int) -> NumbersRecord:
    def spread() -> tuple[float, ...]:
        size = draw(st.sampled_from([0, len(SHARES)]))
        return tuple(sorted(draw(st.lists(TIMES, min_size=size, max_size=size))))

    shares = st.lists(st.floats(0, 1), max_size=20)
    return NumbersRecord(
        requests=draw(st.integers(1, 10**9)),
        output_tokens_per_second=draw(TIMES),
        latency=draw(TIMES),
        time_to_first_token=draw(TIMES),
        time_per_output_token=draw(st.none() | TIMES),
        prompt_tokens=draw(TIMES),
        accept_length=draw(st.none() | TIMES),
        accepted_by_position=tuple(draw(shares)),
        goodput=draw(st.none() | TIMES),
        rounds=tuple(draw(st.lists(SPEEDS, min_size=rounds, max_size=rounds))),
        quantiles=QuantilesRecord(
            latency=spread(), time_to_first_token=spread(), time_per_output_token=spread()
        ),
    )


@st.composite
def _cell(draw: st.DrawFn) -> CellRecord:
    rounds = draw(st.integers(3, 5))
    return CellRecord(
        workload=draw(NAMES),
        context=draw(st.integers(0, 10**6)),
        concurrency=draw(st.integers(1, 4096)),
        claim=draw(st.sampled_from(CLAIMS)),
        speed_up=draw(_interval()),
        latency_ratio=draw(_interval()),
        candidate=draw(_numbers(rounds)),
        baseline=draw(_numbers(rounds)),
        goodput=draw(st.none() | _goodputs()),
    )


@st.composite
def _goodputs(draw: st.DrawFn) -> GoodputRecord:
    return GoodputRecord(
        candidate=draw(TIMES),
        baseline=draw(TIMES),
        candidate_share=draw(st.floats(0, 1)),
        baseline_share=draw(st.floats(0, 1)),
        ratio=draw(st.none() | _interval()),
    )


@st.composite
def certificates(draw: st.DrawFn) -> CertificateDocument:
    counts = draw(st.booleans())
    number = st.none() | st.integers(0, 10**12)
    return CertificateDocument(
        candidate=draw(NAMES),
        baseline=draw(NAMES),
        counts=counts,
        objections=()
        if counts
        else tuple(draw(st.lists(st.builds(Objection, kind=NAMES, message=NAMES), min_size=1))),
        claim=draw(st.sampled_from(CLAIMS)) if counts else None,
        sentence=draw(NAMES),
        error_rate=draw(st.floats(0.001, 0.5)),
        measured=draw(st.none() | NAMES),
        hardware=draw(st.none() | NAMES),
        sides=tuple(
            draw(
                st.lists(
                    st.builds(
                        SideRecord,
                        name=NAMES,
                        engine=st.none() | NAMES,
                        url=st.none() | NAMES,
                        command=st.lists(NAMES, max_size=4),
                        environment=st.dictionaries(NAMES, st.none() | NAMES, max_size=2),
                    ),
                    max_size=2,
                )
            )
        ),
        memory=tuple(
            draw(
                st.lists(
                    st.builds(SideMemory, side=NAMES, max_total_num_tokens=number, bytes=number),
                    max_size=2,
                )
            )
        ),
        caveats=tuple(draw(st.lists(NAMES, max_size=1))),
        goodput_within=draw(st.dictionaries(NAMES, TIMES, max_size=2)),
        quantiles=SHARES,
        cells=tuple(draw(st.lists(_cell(), min_size=1, max_size=4))) if counts else (),
    )
