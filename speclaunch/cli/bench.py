"""`speclaunch bench`: whether speculation pays, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
from speclaunch.cli.bench_results import exit_code, output
from speclaunch.cli.bench_rounds import chosen, measure_all
from speclaunch.cli.bench_sides import (
    default_blocks,
    hardware_of,
    memory_warnings,
    numbers,
    require_starts,
    tell_replaced,
    told_of,
)
from speclaunch.cli.check_options import lookup
from speclaunch.cli.measure_options import BenchOptions
from speclaunch.errors import COMMAND_LINE, ExitCode, InputError, Place, Problem
from speclaunch.launch.free_port import free_port
from speclaunch.report.bench_document import Circumstances, certificate_document
from speclaunch.report.bench_schedule import show_schedule
from speclaunch.report.bench_single import single_document
from speclaunch.report.console import err_lines, out

_MOST_CONCURRENCY, _MOST_CONTEXT = 4096, 1 << 24


def bench(options: BenchOptions) -> ExitCode:
    """Measure, and say what it shows. Raises InputError, LaunchError."""
    written = output(options.output_format, options.output_file)
    sides = _sides(options)
    tell_replaced(*sides)
    within = bounds(options.goodput) if options.goodput is not None else ()
    schedule = _schedule(options, sides)
    if len(sides) == 1:
        written.require_no_page()
    for warning in memory_warnings(sides):
        err_lines().print(f"warning: {warning}", markup=False, style="yellow")
    if options.dry_run:
        _require_load(schedule, options.generator)
        plans = {side.name: side.plan for side in sides if isinstance(side, Side)}
        commands = {side.name: side.identity for side in sides}
        show_schedule(out(), schedule, estimate(schedule, plans, commands, kept_documents()))
        return ExitCode.CLEAN
    load = chosen(options.generator, sides, options.engine, options.tokenizer)
    _require_load(schedule, load.name)
    schedule = replace(schedule, generator=load.name.value)
    identities = [side.identity for side in sides]
    about = {"sides": [side.name for side in sides], "commands": identities}
    kept = begin(sides[0].file_name, key_of(identities, schedule), about, fresh=options.fresh)
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
        written.write(alone)
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
    written.write(document)
    _tell_kept(kept)
    return exit_code(document, options.fail_under)


def _sides(options: BenchOptions) -> tuple[AnySide, ...]:
    """One, or two to be compared. Raises InputError, LaunchError."""
    asked = Asked(
        options.config_dir,
        options.engine,
        lookup(options.models, options.hardware),
        dry_run=options.dry_run,
    )
    against = options.against
    if options.url is None:
        against = NONE if against is None else against
    elif options.overrides:
        raise InputError(
            Problem(
                f"both a server that runs (--url) and a recipe ({options.overrides[0]}) are given",
                Place(COMMAND_LINE, text=f"--url {options.url}"),
                f"compare them: --url {options.url} --against recipe=NAME",
            )
        )
    if against is None and options.fail_under is not None:
        raise InputError(
            Problem(
                "--fail-under needs something that the server is compared with",
                Place(COMMAND_LINE, text=f"--fail-under {options.fail_under:g}"),
                "add --against url=URL, or --against recipe=NAME",
            )
        )
    if against is not None:
        require_baseline(against, is_server=options.url is not None)
    one: AnySide
    one = candidate(options.overrides, asked) if options.url is None else server(options.url, asked)
    return (one,) if against is None else (one, baseline(against, options.overrides, one, asked))


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


def _schedule(options: BenchOptions, sides: Sequence[AnySide]) -> Schedule:
    _require_starts(options, sides)
    concurrencies = numbers("--concurrency", options.concurrency, 1, _MOST_CONCURRENCY)
    contexts = numbers("--context", options.context, 0, _MOST_CONTEXT)
    prompts = tuple(
        with_room(workload(name, options.output_tokens, options.input_tokens, context), sides)
        for name in dict.fromkeys(options.workload or ("chat",))
        for context in contexts
    )
    schedule = Schedule(
        tuple(s.order(free_port()) if isinstance(s, Side) else s.order() for s in sides),
        prompts,
        concurrencies,
        options.rounds,
        options.requests,
        _blocks(options, sides),
        options.starts,
    )
    _require_prompts(prompts, schedule)
    return schedule


def _blocks(options: BenchOptions, sides: Sequence[AnySide]) -> int:
    running = [side.url for side in sides if isinstance(side, RunningSide)]
    if running and options.blocks:
        raise InputError(
            Problem(
                f"{running[0]} runs already: it is not stopped for the other side's turn",
                Place(COMMAND_LINE, text=f"--blocks {options.blocks}"),
                "leave --blocks out",
            )
        )
    if options.blocks is not None or running:
        return options.blocks or 0
    on_cpu = all(isinstance(side, Side) and side.prepared.cpu is not None for side in sides)
    return 0 if on_cpu else default_blocks(options.starts)


def _require_starts(options: BenchOptions, sides: Sequence[AnySide]) -> None:
    """Raises InputError."""
    running = next((side for side in sides if isinstance(side, RunningSide)), None)
    if running is not None and options.starts > 1:
        told = f"{running.url} runs already: it is not started again"
        place = Place(COMMAND_LINE, text=f"--starts {options.starts}")
        raise InputError(Problem(told, place, "leave --starts out"))
    require_starts("--starts", options.starts, options.rounds)


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
