"""What `speclaunch bench` does with its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speclaunch.bench.aiperf import require_measurable
from speclaunch.bench.certificate import certificate
from speclaunch.bench.comparison import Schedule
from speclaunch.bench.cost import read as read_costs
from speclaunch.bench.estimate import estimate
from speclaunch.bench.find_kept import kept_documents
from speclaunch.bench.gate import Objection, objections
from speclaunch.bench.goodput import bounds
from speclaunch.bench.keeping import Kept, begin, key_of
from speclaunch.bench.load import Generators
from speclaunch.bench.measurement import Measured, Round
from speclaunch.bench.room import with_room
from speclaunch.bench.running import RunningSide
from speclaunch.bench.sides import (
    NONE,
    AnySide,
    Asked,
    Side,
    baseline,
    candidate,
    require_baseline,
    server,
)
from speclaunch.bench.single import single
from speclaunch.bench.workload import Prompts, workload
from speclaunch.cli.bench_kept import exit_code
from speclaunch.cli.bench_output import Output
from speclaunch.cli.bench_rounds import chosen, measure_all
from speclaunch.cli.bench_sides import hardware_of, memory_warnings, tell_replaced, told_of
from speclaunch.cli.check_options import lookup
from speclaunch.cli.numbers import numbers
from speclaunch.cli.starts import default_blocks, require_starts
from speclaunch.errors import COMMAND_LINE, ExitCode, InputError, Place, Problem
from speclaunch.launch.free_port import free_port
from speclaunch.record import record
from speclaunch.report.bench_document import Circumstances, certificate_document
from speclaunch.report.bench_schedule import show_schedule
from speclaunch.report.bench_single import single_document
from speclaunch.report.console import err_lines, out

_MOST_CONCURRENCY, _MOST_CONTEXT = 4096, 1 << 24


@record
class BenchWords:
    """A command line of `speclaunch bench`: see its help."""

    overrides: tuple[str, ...]
    url: str | None
    tokenizer: str | None
    against: str | None
    workloads: tuple[str, ...]
    concurrency: str
    context: str
    goodput: str | None
    generator: Generators
    rounds: int
    requests: int
    output_tokens: int
    input_tokens: int
    blocks: int | None
    starts: int
    fail_under: float | None
    dry_run: bool
    fresh: bool
    config_dirs: tuple[Path, ...]
    engine: str | None
    hardware: str | None
    models: tuple[Path, ...]
    output: Output


def run_bench(words: BenchWords) -> ExitCode:
    """Measure, and say what it shows. Raises InputError, LaunchError."""
    sides = _sides(words)
    tell_replaced(*sides)
    within = bounds(words.goodput) if words.goodput is not None else ()
    schedule = _schedule(words, sides)
    if len(sides) == 1:
        words.output.require_no_page()
    for warning in memory_warnings(sides):
        err_lines().print(f"warning: {warning}", markup=False, style="yellow")
    if words.dry_run:
        _require_load(schedule, words.generator)
        plans = {side.name: side.plan for side in sides if isinstance(side, Side)}
        commands = {side.name: side.identity for side in sides}
        show_schedule(out(), schedule, estimate(schedule, plans, commands, kept_documents()))
        return ExitCode.CLEAN
    load = chosen(words.generator, sides, words.engine, words.tokenizer)
    _require_load(schedule, load.name)
    schedule = replace(schedule, generator=load.name.value)
    identities = [side.identity for side in sides]
    about = {"sides": [side.name for side in sides], "commands": identities}
    kept = begin(sides[0].file_name, key_of(identities, schedule), about, fresh=words.fresh)
    rounds = measure_all(schedule, sides, kept, load)
    refused = _objections(schedule, sides, rounds)
    made_up = {s.name: s.expected.simulated for s in sides if s.expected.simulated}
    memory = read_costs(kept.directory)
    if len(sides) == 1:
        alone = single_document(
            single(
                sides[0].name,
                Measured(tuple(rounds)),
                refused,
                simulated=made_up,
                goodput_within=within,
                memory=memory,
            )
        )
        kept.write(rounds, alone.model_dump(mode="json"))
        words.output.write(alone)
        _tell_kept(kept)
        return ExitCode.CLEAN if alone.counts else ExitCode.FAILED
    result = certificate(
        sides[0].name,
        sides[1].name,
        Measured(tuple(rounds)),
        refused,
        simulated=made_up,
        goodput_within=within,
        memory=memory,
        starts=schedule.starts,
    )
    about_it = Circumstances(tuple(map(told_of, sides)), kept.stamp(), hardware_of(sides[0]))
    document = certificate_document(result, rounds, about_it)
    kept.write(rounds, document.model_dump(mode="json"))
    words.output.write(document)
    _tell_kept(kept)
    return exit_code(document, words.fail_under)


def _sides(words: BenchWords) -> tuple[AnySide, ...]:
    """One, or two to be compared. Raises InputError, LaunchError."""
    asked = Asked(
        words.config_dirs,
        words.engine,
        lookup(words.models, words.hardware),
        dry_run=words.dry_run,
    )
    against = words.against
    if words.url is None:
        against = NONE if against is None else against
    elif words.overrides:
        raise InputError(
            Problem(
                f"both a server that runs (--url) and a recipe ({words.overrides[0]}) are given",
                Place(COMMAND_LINE, text=f"--url {words.url}"),
                f"compare them: --url {words.url} --against recipe=NAME",
            )
        )
    if against is None and words.fail_under is not None:
        raise InputError(
            Problem(
                "--fail-under needs something that the server is compared with",
                Place(COMMAND_LINE, text=f"--fail-under {words.fail_under:g}"),
                "add --against url=URL, or --against recipe=NAME",
            )
        )
    if against is not None:
        require_baseline(against, is_server=words.url is not None)
    one: AnySide
    one = candidate(words.overrides, asked) if words.url is None else server(words.url, asked)
    return (one,) if against is None else (one, baseline(against, words.overrides, one, asked))


def _require_load(schedule: Schedule, generator: Generators) -> None:
    if generator is Generators.AIPERF:
        require_measurable([side.key for side in schedule.sides], schedule.workloads)


def _objections(
    schedule: Schedule, sides: Sequence[AnySide], rounds: Sequence[Round]
) -> tuple[Objection, ...]:
    """Of each context length and concurrency apart, because a round has its own size in each."""
    expected = [side.expected for side in sides]
    found = [
        one
        for context, concurrency in dict.fromkeys((r.context, r.concurrency) for r in rounds)
        for one in objections(
            Measured(
                tuple(r for r in rounds if (r.context, r.concurrency) == (context, concurrency))
            ),
            expected,
            schedule.requests_at(concurrency),
        )
    ]
    return tuple(dict.fromkeys(found))


def _schedule(words: BenchWords, sides: Sequence[AnySide]) -> Schedule:
    _require_starts(words, sides)
    concurrencies = numbers("--concurrency", words.concurrency, 1, _MOST_CONCURRENCY)
    contexts = numbers("--context", words.context, 0, _MOST_CONTEXT)
    prompts = tuple(
        with_room(workload(name, words.output_tokens, words.input_tokens, context), sides)
        for name in dict.fromkeys(words.workloads)
        for context in contexts
    )
    schedule = Schedule(
        tuple(s.order(free_port()) if isinstance(s, Side) else s.order() for s in sides),
        prompts,
        concurrencies,
        words.rounds,
        words.requests,
        _blocks(words, sides),
        words.starts,
    )
    _require_prompts(prompts, schedule)
    return schedule


def _blocks(words: BenchWords, sides: Sequence[AnySide]) -> int:
    running = [side.url for side in sides if isinstance(side, RunningSide)]
    if running and words.blocks:
        raise InputError(
            Problem(
                f"{running[0]} runs already: it is not stopped for the other side's turn",
                Place(COMMAND_LINE, text=f"--blocks {words.blocks}"),
                "leave --blocks out",
            )
        )
    if words.blocks is not None or running:
        return words.blocks or 0
    on_cpu = all(isinstance(side, Side) and side.prepared.cpu is not None for side in sides)
    return 0 if on_cpu else default_blocks(words.starts)


def _require_starts(words: BenchWords, sides: Sequence[AnySide]) -> None:
    """Raises InputError."""
    running = next((side for side in sides if isinstance(side, RunningSide)), None)
    if running is not None and words.starts > 1:
        told = f"{running.url} runs already: it is not started again"
        place = Place(COMMAND_LINE, text=f"--starts {words.starts}")
        raise InputError(Problem(told, place, "leave --starts out"))
    require_starts("--starts", words.starts, words.rounds)


def _require_prompts(workloads: Sequence[Prompts], schedule: Schedule) -> None:
    most = max(map(schedule.requests_at, schedule.concurrencies))
    for one in workloads:
        if one.texts is not None and len(set(one.texts)) < most:
            raise InputError(
                Problem(
                    f"the workload {one.name} has {len(set(one.texts))} different prompts, and a "
                    f"round takes {most}",
                    help="lower --concurrency or --requests, or use --workload random",
                )
            )


def _tell_kept(kept: Kept) -> None:
    err_lines().print(f"kept in {kept.directory}", markup=False)
