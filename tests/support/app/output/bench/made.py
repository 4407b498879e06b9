"""Certificates made of rounds that were never measured: by their real way, from requests on."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

from msgspec import to_builtins
from msgspec.structs import replace

from speclaunch.measure.bench.certificate import certificate
from speclaunch.measure.bench.measurement import Bound, MeasuredRequest, Objection, Round
from speclaunch.measure.bench.schema import (
    CertificateDocument,
    SideMemory,
    SideRecord,
    SingleDocument,
)
from speclaunch.measure.bench.stored import StoredBench
from speclaunch.measure.bench.stored_names import FILE, directory
from tests.support.measure.bench.making import GOOD, PLAIN

OURS, THEIRS = "eagle3_llama8b", "eagle3_llama8b without speculation"
COMMAND = (
    *("python3", "-m", "sglang.launch_server", "--model-path", "meta-llama/Llama-3.1-8B-Instruct"),
    *("--api-key", "***", "--mem-fraction-static", "0.7"),
)
SIDES = (
    SideRecord(
        name=OURS,
        engine="0.5.23",
        command=(*COMMAND, "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"),
        environment={"SGLANG_ENABLE_SPEC_V2": "1"},
    ),
    SideRecord(name=THEIRS, engine="0.5.23", command=COMMAND),
)
MEMORY = (
    SideMemory(side=OURS, max_total_num_tokens=301_244, bytes=61 << 30),
    SideMemory(side=THEIRS, max_total_num_tokens=332_100, bytes=60 << 30),
)


def a_request(random: Random, tokens_each_second: float, *, speculates: bool) -> MeasuredRequest:
    latency = 32 / tokens_each_second * math.exp(random.gauss(0, 0.2))
    first = latency * random.uniform(0.05, 0.2)
    accepted = sorted((random.randint(0, 5) for _ in range(3)), reverse=True)
    found = replace(GOOD, latency=latency, first_token=first, positions=(3, *accepted))
    return found if speculates else replace(found, **PLAIN)


def measured(
    *,
    speed_up: float = 1.6,
    falls: float = 0.72,
    noise: float = 0.04,
    workloads: tuple[str, ...] = ("code", "chat"),
    concurrencies: tuple[int, ...] = (1, 8, 32),
    rounds: int = 6,
    seed: int = 1,
    names: tuple[str, str] = (OURS, THEIRS),
) -> list[Round]:
    """Rounds of two sides; the speed-up `falls` by this factor from a concurrency to the next."""
    random = Random(seed)
    found: list[Round] = []
    for workload_at, workload in enumerate(workloads):
        for at, concurrency in enumerate(concurrencies):
            for number in range(rounds):
                for side in names:
                    factor = speed_up * falls**at * 0.9**workload_at if side == names[0] else 1.0
                    speed = 60 * concurrency**0.8 * factor * math.exp(random.gauss(0, noise))
                    own = side == names[0]
                    each = [a_request(random, speed / concurrency, speculates=own)
                            for _ in range(8)]  # fmt: skip
                    seconds = sum(one.tokens or 0 for one in each) / speed
                    found.append(Round(side, workload, concurrency, number, seconds, tuple(each)))
    return found


def made(
    *,
    objections: tuple[Objection, ...] = (),
    simulated: dict[str, str] | None = None,
    within: tuple[Bound, ...] = (),
    starts: int = 1,
    **changes: object,
) -> CertificateDocument:
    """A certificate of `measured(**changes)`."""
    names = changes.get("names", (OURS, THEIRS))
    found = measured(**changes)  # type: ignore[arg-type]
    return certificate(
        *names,  # type: ignore[misc]
        found,
        objections,
        simulated=simulated,
        goodput_within=within,
        starts=starts,
        sides=SIDES,
        measured="2026-11-23T10:40:00+0000",
        hardware="h100",
    )


def keep(
    name: str,
    result: CertificateDocument | SingleDocument | None,
    rounds: tuple[Round, ...] | list[Round] = (),
) -> Path:
    """As a comparison keeps it, in the home that is set."""
    folder = directory() / name
    folder.mkdir(parents=True)
    about = {"sides": [OURS, THEIRS], "commands": [list(side.command) for side in SIDES]}
    document = to_builtins(result)
    StoredBench(folder, name, about).write(rounds, document)
    return folder / FILE
