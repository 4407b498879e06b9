"""`speclaunch prove`: whether speculation leaves every answer as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence

from speclaunch.bench.engines import end_on_signals
from speclaunch.bench.sides import NONE, Asked, baseline, candidate
from speclaunch.bench.workload import RANDOM, shipped, workload
from speclaunch.cli.bench_sides import numbers, tell_replaced
from speclaunch.cli.check_options import lookup
from speclaunch.cli.measure_options import ProveOptions
from speclaunch.cli.options import OutputFormat
from speclaunch.cli.prove_task import Engines, Keeper, Task, ask_ours, judge, served_dtype
from speclaunch.errors import COMMAND_LINE, ExitCode, InputError, Place, Problem
from speclaunch.proving.answers import Question
from speclaunch.proving.keeping import Heard, Kept, begin
from speclaunch.proving.proof import Proof
from speclaunch.report.console import err_lines, out
from speclaunch.report.proving import document, show_proof

_MOST_CONCURRENCY, _MOST_WORDS = 1024, 1 << 20


def prove(options: ProveOptions) -> ExitCode:
    """Ask both servers, and judge. Raises InputError, LaunchError."""
    levels = numbers("--concurrency", options.concurrency, 1, _MOST_CONCURRENCY)
    lengths = numbers("--context", options.context, 0, _MOST_WORDS)
    questions = _questions(options, lengths)
    told = Asked(
        options.config_dir,
        options.engine,
        lookup(options.models, options.hardware),
        dry_run=options.dry_run,
    )
    ours = candidate(options.overrides, told)
    tell_replaced(ours)
    if not ours.expected.speculates:
        raise InputError(
            Problem(
                f"{ours.name} does not speculate: there is nothing to prove",
                help="name a recipe that does: speclaunch recipes",
            )
        )
    plain = baseline(NONE, options.overrides, ours, told)
    if ours.expected.simulated:
        where = Place(COMMAND_LINE, text=ours.expected.simulated)
        raise InputError(
            Problem(
                f"{ours.expected.simulated} makes acceptance up: every answer is wrong",
                where,
                "take it out of the environment and of engine.env",
            )
        )
    task = Task(ours, plain, tuple(questions), levels, options.samples)
    if options.dry_run:
        for line in task.lines():
            out().print(line, markup=False, highlight=False)
        return ExitCode.CLEAN
    kept = begin(ours.prepared.recipe.deployment.name, task.key, task.about, fresh=options.fresh)
    result, heard = _worked(task, kept)
    found = document(result, ours.name, plain.name, ours.prepared.version, served_dtype(ours))
    kept.write(heard, found)
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(found))
    else:
        show_proof(out(), result, ours.name)
        err_lines().print(f"kept in {kept.directory}")
    return ExitCode.CLEAN if result.is_lossless else ExitCode.FAILED


def _worked(task: Task, kept: Kept) -> tuple[Proof, Heard]:
    """Ask what is not kept yet; what the speculative server says is kept as soon as it is there."""
    lines = err_lines()
    if kept.heard.count:
        lines.print(
            f"going on with {kept.directory.name}: {kept.heard.count} answers are there "
            "(--fresh begins again)"
        )
    end_on_signals()
    keeper = Keeper(kept)
    try:
        with Engines(kept.directory, lines.print) as engines:
            if task.together and not task.is_complete(keeper.heard):
                engines.begin(task.ours)
                engines.begin(task.plain)
            ask_ours(task, engines, keeper, lines.print)
            return judge(task, engines, keeper.heard, served_dtype(task.ours)), keeper.heard
    except KeyboardInterrupt:
        lines.print(
            f"interrupted: the engines are stopped, {keeper.heard.count} answers are kept in "
            f"{kept.directory}; the same command goes on from there"
        )
        raise


def _questions(options: ProveOptions, lengths: Sequence[int]) -> list[Question]:
    found: list[Question] = []
    for name in dict.fromkeys(options.workload) or shipped():
        if name == RANDOM:
            raise InputError(
                Problem(
                    "random tokens have no text to be asked for",
                    Place(COMMAND_LINE, text=f"--workload {name}"),
                    f"use {', '.join(shipped())}, or a JSONL file",
                )
            )
        texts = workload(name, options.output_tokens, 0).texts or ()
        for length in lengths:
            found += [
                Question(_lengthened(texts, index, length), options.output_tokens)
                for index in range(len(texts))
            ]
    return found


def _lengthened(texts: Sequence[str], index: int, words: int) -> str:
    """A prompt behind others of its workload, until it has so many words."""
    parts = [texts[index]]
    step = 1
    while sum(len(part.split()) for part in parts) < words:
        parts.insert(0, texts[(index + step) % len(texts)])
        step += 1
    return "\n\n".join(parts)
