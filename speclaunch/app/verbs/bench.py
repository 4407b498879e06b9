"""`speclaunch bench`: measure the speed-up of speculation; show and compare measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec.json
import typer
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from speclaunch.app.output import bench as texts
from speclaunch.app.output.console import err, err_lines, out
from speclaunch.app.verbs.bench_sides import (
    default_blocks,
    hardware_of,
    memory_warnings,
    numbers,
    require_starts,
    side_options,
    side_record,
    tell_replaced,
)
from speclaunch.app.verbs.locking import SideLock
from speclaunch.app.verbs.options import CertificateFormat, DifferenceFormat, OutputFormat
from speclaunch.app.verbs.run_options import (
    BenchCompareOptions,
    BenchOptions,
    BenchShowOptions,
    FormatOptions,
)
from speclaunch.app.verbs.shared import output_files, write_result
from speclaunch.core import COMMAND_LINE, ExitCode, InputError, LaunchError, Place, json_value
from speclaunch.measure import (
    NONE,
    Aiperf,
    AnySide,
    CertificateDocument,
    DifferenceDocument,
    EngineOrder,
    EnginePython,
    Generators,
    LaunchedSide,
    LoadGenerator,
    MeasuredEngine,
    Objection,
    Prompts,
    Round,
    Running,
    RunningSide,
    Schedule,
    Serving,
    SglangGenerator,
    SingleDocument,
    StoredBench,
    baseline,
    begin_bench,
    bounds,
    candidate,
    certificate,
    cost_of,
    difference,
    directory,
    end_on_signals,
    estimate,
    find_aiperf,
    find_certificate,
    find_measured,
    generator_interpreter,
    key_of,
    measure,
    next_log,
    objections,
    require_aiperf,
    require_baseline,
    require_cells,
    require_measurable,
    server,
    server_info,
    single,
    speculation_profile,
    steps,
    stored_benches,
    stored_documents,
    with_published,
    with_room,
    workload,
)
from speclaunch.measure import read as read_costs
from speclaunch.measure import write as write_costs
from speclaunch.serving import free_port

_WIDTH = 400
_PROFILE = "speculation_profile.json"
"""File name that implies the format of NVIDIA Model Optimizer."""
_SUFFIXES = {_PROFILE: "speculation_profile", ".htm": "html", ".md": "markdown", ".txt": "text"}


BenchDocument = CertificateDocument | SingleDocument | DifferenceDocument


class BenchOutput(Struct, frozen=True):
    """Format of standard output, and the output files with their formats."""

    shown: StrEnum
    files: tuple[tuple[Path, StrEnum], ...] = ()

    def write(self, found: BenchDocument) -> None:
        """Write `found` to standard output and to all files. Raises InputError."""
        if isinstance(found, SingleDocument):
            self.require_no_page()
        if self.shown == CertificateFormat.TEXT:
            _show(found, out())
        else:
            typer.echo(_text(found, self.shown), nl=False)
        for path, form in self.files:
            write_result(path, _text(found, form))

    def require_no_page(self) -> None:
        """Raise InputError if an HTML page is requested: a single server has none."""
        if CertificateFormat.HTML in (self.shown, *(form for _, form in self.files)):
            raise InputError(
                "a measurement of a single server has no HTML page",
                help="add --against, or use --output-format text, json or markdown",
            )


def output(shown: CertificateFormat | DifferenceFormat, files: Sequence[str]) -> BenchOutput:
    """Return the requested formats and files. Raises InputError if a file cannot be written."""
    named = [_PROFILE if file == CertificateFormat.SPECULATION_PROFILE else file for file in files]
    return BenchOutput(shown, output_files(named, type(shown), _SUFFIXES))


def _text(found: BenchDocument, form: StrEnum) -> str:
    """Return a document as text in format `form`; HTML is for certificates only."""
    document: object = found if form == CertificateFormat.JSON else None
    if form == CertificateFormat.SPECULATION_PROFILE and not isinstance(found, DifferenceDocument):
        document = speculation_profile(found)
    if document is not None:
        return (
            msgspec.json.format(msgspec.json.encode(json_value(document)), indent=2).decode() + "\n"
        )
    if form == CertificateFormat.TEXT:
        stream = StringIO()
        console = Console(
            file=stream,
            width=_WIDTH,
            soft_wrap=True,
            highlight=False,
            markup=False,
            color_system=None,
        )
        _show(found, console)
        return stream.getvalue()
    if isinstance(found, CertificateDocument) and form == CertificateFormat.HTML:
        from speclaunch.app.output.bench_page import certificate_page

        return certificate_page(found) + "\n"
    if isinstance(found, CertificateDocument):
        return texts.certificate_markdown(found)
    if isinstance(found, SingleDocument):
        return texts.single_markdown(found)
    return texts.difference_markdown(found)


def _show(found: BenchDocument, console: Console) -> None:
    if isinstance(found, CertificateDocument):
        texts.show_certificate(console, found)
    elif isinstance(found, SingleDocument):
        texts.show_single(console, found)
    else:
        texts.show_difference(console, found)


def list_results(options: FormatOptions) -> None:
    """List the saved comparisons."""
    found = stored_benches()
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(texts.list_document(found)))
    elif found:
        texts.show_benches(out(), found)
    else:
        err_lines().print(f"no comparison is saved in {directory()}")


def show(options: BenchShowOptions) -> ExitCode:
    """Show a saved certificate, or the results of a single server. Raises InputError."""
    written = output(options.output_format, options.output_file)
    find = find_measured if options.fail_under is None else find_certificate
    found = find(options.name)
    written.write(found)
    return exit_code(found, options.fail_under)


def exit_code(found: CertificateDocument | SingleDocument, fail_under: float | None) -> ExitCode:
    """Return FAILED if the result is invalid or its speed-up may miss `fail_under`, else CLEAN."""
    if not found.counts:
        return ExitCode.FAILED
    if isinstance(found, SingleDocument):
        return ExitCode.CLEAN
    least = min((cell.speed_up.low for cell in found.cells), default=None)
    return _above("the speed-up", None if found.caveats else least, fail_under)


def _above(what: str, least: float | None, fail_under: float | None) -> ExitCode:
    if fail_under is None or (least is not None and least >= fail_under):
        return ExitCode.CLEAN
    result = "is simulated" if least is None else f"may be {least:.2f}"
    err_lines().print(f"{what} {result}: not above --fail-under {fail_under:g}")
    return ExitCode.FAILED


def compare(options: BenchCompareOptions) -> ExitCode:
    """Compare two certificates. Raises InputError."""
    written = output(options.output_format, options.output_file)
    names = (options.before, options.after)
    sides = [find_certificate(name) for name in names]
    for name, side in zip(names, sides, strict=True):
        require_cells(name, side)
    found = difference(sides[0], sides[1], names)
    if not found.cells:
        cells = [", ".join(map(texts.per_cell, side.cells)) for side in sides]
        raise InputError(
            f"{names[0]} ({cells[0]}) and {names[1]} ({cells[1]}) have no cell in common",
            help="measure both with the same --workload, --concurrency and --context",
        )
    written.write(found)
    least = min(cell.speed_up.low for cell in found.cells)
    made_up = any(side.caveats for side in sides)
    return _above("the ratio", None if made_up else least, options.fail_under)


_MOST_CONCURRENCY, _MOST_CONTEXT = 4096, 1 << 24


def bench(options: BenchOptions) -> ExitCode:
    """Measure one or two sides and write the result. Raises InputError, LaunchError."""
    written = output(options.output_format, options.output_file)
    sides = _sides(options)
    tell_replaced(*sides)
    locking = SideLock(options, sides[0])
    within = bounds(options.goodput) if options.goodput is not None else ()
    schedule = _schedule(options, sides)
    if len(sides) == 1:
        written.require_no_page()
    for warning in memory_warnings(sides):
        err_lines().print(f"warning: {warning}", style="yellow")
    if options.dry_run:
        from speclaunch.app.output.bench_progress import show_schedule

        _require_load(schedule, options.generator)
        plans = {side.name: side.plan for side in sides if isinstance(side, LaunchedSide)}
        commands = {side.name: side.identity for side in sides}
        show_schedule(out(), schedule, estimate(schedule, plans, commands, stored_documents()))
        return ExitCode.CLEAN
    generator, begin_load = _chosen(options, sides)
    _require_load(schedule, generator)
    schedule = replace(schedule, generator=generator.value)
    identities = [side.identity for side in sides]
    about = {"sides": [side.name for side in sides], "commands": identities}
    stored = begin_bench(
        sides[0].file_name, key_of(identities, schedule), about, fresh=options.fresh
    )
    rounds = _measured(schedule, sides, stored, begin_load)
    refused = _objections(schedule, sides, rounds)
    made_up = {s.name: s.expected.simulated for s in sides if s.expected.simulated}
    memory = read_costs(stored.directory)
    document: CertificateDocument | SingleDocument
    if len(sides) == 1:
        document = single(
            sides[0].name,
            rounds,
            refused,
            simulated=made_up,
            goodput_within=within,
            memory=memory,
        )
    else:
        document = certificate(
            sides[0].name,
            sides[1].name,
            rounds,
            refused,
            simulated=made_up,
            goodput_within=within,
            memory=memory,
            starts=schedule.starts,
            sides=tuple(map(side_record, sides)),
            measured=stored.stamp(),
            hardware=hardware_of(sides[0]),
        )
    document = with_published(document, sides[0])
    stored.write(rounds, json_value(document))
    written.write(document)
    err_lines().print(f"saved to {stored.directory}")
    if document.counts:
        locking.write()
    return exit_code(document, options.fail_under)


def _sides(options: BenchOptions) -> tuple[AnySide, ...]:
    """Return one side, or two to compare. Raises InputError, LaunchError."""
    shared = side_options(options)
    against = options.against
    if options.url is None:
        against = NONE if against is None else against
    elif options.overrides:
        raise InputError(
            f"--url cannot be combined with a recipe ({options.overrides[0]})",
            Place(COMMAND_LINE, text=f"--url {options.url}"),
            f"compare them: --url {options.url} --against recipe=NAME",
        )
    if against is None and options.fail_under is not None:
        raise InputError(
            "--fail-under needs a baseline",
            Place(COMMAND_LINE, text=f"--fail-under {options.fail_under:g}"),
            "add --against url=URL, or --against recipe=NAME",
        )
    if against is not None:
        require_baseline(against, is_server=options.url is not None)
    side: AnySide
    side = (
        candidate(options.overrides, shared) if options.url is None else server(options.url, shared)
    )
    return (
        (side,) if against is None else (side, baseline(against, options.overrides, side, shared))
    )


def _require_load(schedule: Schedule, generator: Generators) -> None:
    if generator is Generators.AIPERF:
        require_measurable([side.key for side in schedule.sides], schedule.workloads)


def _objections(
    schedule: Schedule, sides: Sequence[AnySide], rounds: Sequence[Round]
) -> tuple[Objection, ...]:
    """Return the objections. Each context and concurrency is checked separately."""
    expected = [side.expected for side in sides]
    found = [
        objection
        for context, concurrency in dict.fromkeys((r.context, r.concurrency) for r in rounds)
        for objection in objections(
            [r for r in rounds if (r.context, r.concurrency) == (context, concurrency)],
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
        tuple(s.order(free_port()) if isinstance(s, LaunchedSide) else s.order() for s in sides),
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
            f"{running[0]} is already running and cannot be stopped between rounds",
            Place(COMMAND_LINE, text=f"--blocks {options.blocks}"),
            "remove --blocks",
        )
    if options.blocks is not None or running:
        return options.blocks or 0
    on_cpu = all(isinstance(side, LaunchedSide) and side.prepared.cpu is not None for side in sides)
    return 0 if on_cpu else default_blocks(options.starts)


def _require_starts(options: BenchOptions, sides: Sequence[AnySide]) -> None:
    running = next((side for side in sides if isinstance(side, RunningSide)), None)
    if running is not None and options.starts > 1:
        message = f"{running.url} is already running and cannot be restarted"
        place = Place(COMMAND_LINE, text=f"--starts {options.starts}")
        raise InputError(message, place, "remove --starts")
    require_starts("--starts", options.starts, options.rounds)


def _require_prompts(workloads: Sequence[Prompts], schedule: Schedule) -> None:
    most = max(map(schedule.requests_at, schedule.concurrencies))
    for prompts in workloads:
        if prompts.texts is not None and (count := len(set(prompts.texts))) < most:
            raise InputError(
                f"workload {prompts.name} has {count} different prompts; a round needs {most}",
                help="lower --concurrency or --requests, or use --workload random",
            )


BeginLoad = Callable[[Path], LoadGenerator]
"""Function that starts a load generator with a folder for its files. Raises LaunchError."""


def _measured(
    schedule: Schedule, sides: Sequence[AnySide], stored: StoredBench, begin_load: BeginLoad
) -> list[Round]:
    """Measure and save each missing round; return all rounds."""
    from speclaunch.app.output.bench_progress import BenchCourse, progress

    rounds = list(stored.rounds)
    due = [step for step in steps(schedule) if not step.is_done(rounds)]
    if not due:
        return rounds
    if rounds:
        err_lines().print(f"resuming {stored.directory.name} ({len(rounds)} rounds measured)")
    end_on_signals()
    running = {side.name: side for side in sides if isinstance(side, RunningSide)}

    def start(order: EngineOrder) -> Serving:
        if order.name in running:
            return Running(running[order.name])
        return MeasuredEngine(order, next_log(stored.directory))

    def keep_cost(order: EngineOrder, engine: Any) -> None:
        try:
            info = server_info(engine.url, order.key or None)
        except LaunchError as error:
            err_lines().print(f"memory use of {order.name} is unknown: {error}")
            return
        write_costs(stored.directory, [cost_of(order.name, info, engine.pid)])

    generator = begin_load(stored.directory)
    try:
        with progress(err(), err_lines(), BenchCourse(schedule, rounds, due)) as shown:
            for found in measure(schedule, start, generator, shown.say, rounds, keep_cost):
                rounds.append(found)
                stored.write(rounds)
                shown.round(found)
    finally:
        generator.close()
    return rounds


def _chosen(options: BenchOptions, sides: Sequence[AnySide]) -> tuple[Generators, BeginLoad]:
    """Return the load generator of `--generator`, and the function that starts it.

    `sglang` runs in the engine's interpreter; `aiperf` is a separate program.
    Raises LaunchError if the generator is not available.
    """
    # do not trust a tokenizer that only a running server names
    trusted = options.tokenizer is not None or isinstance(sides[0], LaunchedSide)
    tokenizer = options.tokenizer or sides[0].tokenizer
    chosen, own, why = options.generator, None, None
    launched = next((side for side in sides if isinstance(side, LaunchedSide)), None)
    try:
        own = (
            EnginePython(launched.prepared.python, launched.environment)
            if launched is not None
            else generator_interpreter(options.engine)
        )
    except LaunchError as error:
        why = error
    if chosen is Generators.AUTO:
        chosen = Generators.SGLANG if own is not None or not find_aiperf() else Generators.AIPERF
    if chosen is Generators.AIPERF:
        program, models = require_aiperf(), {side.name: side.model for side in sides}
        return chosen, lambda folder: Aiperf(program, folder, tokenizer, models, own)
    if own is None:
        raise why or AssertionError

    def begin_sglang(folder: Path) -> LoadGenerator:
        err_lines().print("loading the engine's load generator")
        return SglangGenerator(own.python, own.environment, folder, tokenizer, trusted=trusted)

    return chosen, begin_sglang
