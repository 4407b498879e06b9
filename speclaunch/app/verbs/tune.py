"""`speclaunch tune`: find the fastest speculation settings on this machine."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.app.output.console import err_lines, out
from speclaunch.app.output.tuning import TuningOutcome, document, evidence, show_outcome
from speclaunch.app.verbs.bench_sides import (
    default_blocks,
    require_starts,
    side_options,
    tell_replaced,
)
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import TuneOptions
from speclaunch.app.verbs.shared import (
    OutputRefusedError,
    require_free,
    require_recipe_file,
    require_sound,
    require_writable,
)
from speclaunch.checks import against, check_text, configured, shown_diff, write_atomically
from speclaunch.core import (
    COMMAND_LINE,
    ExitCode,
    InputError,
    LaunchError,
    Place,
    json_value,
    reads,
)
from speclaunch.deployments import find_recipe, split_recipe
from speclaunch.engine import is_secret_argument
from speclaunch.measure import (
    OWN,
    Compared,
    DraftSetting,
    EngineOrder,
    Expectation,
    LaunchedSide,
    MeasuredEngine,
    Protocol,
    Round,
    Schedule,
    SglangGenerator,
    StoredStarts,
    TrialStart,
    Tuned,
    TuningBudget,
    TuningObjective,
    TuningVerdict,
    Verified,
    algorithm_of,
    begin_bench,
    budget,
    candidate,
    checked,
    configuration,
    elsewhere,
    end_on_signals,
    expectation,
    first_settings,
    key_of,
    measure,
    measure_setting,
    next_trial,
    objective,
    order_of,
    override_words,
    own_setting,
    possible,
    published_setting,
    ranked,
    require_adaptive,
    require_own,
    steps,
    stored_starts,
    trial_models,
    tuned,
    verdict,
    with_room,
    workload,
)
from speclaunch.serving import command, free_port, unfinished_work

_LEAST_ROUNDS = 12
"""Minimum number of rounds for each side of the final comparison."""
_MINUTE = 60


def tune(options: TuneOptions) -> ExitCode:
    """Try settings until none is predicted to be better, then compare the best with the recipe.

    Raises InputError, LaunchError.
    """
    question = _question(options)
    if options.dry_run:
        _show_starts(question)
        return ExitCode.CLEAN
    memory = stored_starts(question.key, fresh=options.fresh)
    memory, why = tried(question, memory)
    if not memory.starts:
        reason = next(iter(memory.failed.values()), why)
        raise LaunchError(f"no setting could be measured: {reason}", help=f"see {memory.path}")
    memory, found = verified(question, memory, _best(question, memory))
    return _conclude(question, memory, found, why)


class TuningTask(Struct, frozen=True):
    """Search space, objective and budget of a tuning run."""

    options: TuneOptions
    side: LaunchedSide
    algorithm: str
    path: Path
    """Recipe file."""
    space: tuple[DraftSetting, ...]
    own: DraftSetting | None
    published: DraftSetting | None
    """Setting from published evidence; None if there is none in `space`."""
    aim: TuningObjective
    protocol: Protocol
    budget: TuningBudget
    compared_rounds: int
    """Rounds of each side when the best settings are compared with the recipe's."""
    blocks: int

    @property
    def key(self) -> str:
        """Digest of the command, search space and protocol, which determine the trials."""
        searched = map(json_value, (self.space, self.protocol))
        return unfinished_work.digest([command(self.side.prepared), *searched])


def _question(options: TuneOptions) -> TuningTask:
    aim = objective(options.objective)
    side = candidate(options.overrides, side_options(options))
    tell_replaced(side)
    algorithm = algorithm_of(side)
    name, _ = split_recipe(options.overrides)
    path = find_recipe(name, options.config_dir)
    if options.write:
        require_own(path, options.overrides)
    if (options.write or options.output_file) and not options.verify:
        place = Place(COMMAND_LINE, text="--verify 0")
        raise InputError(
            "--write and --output need --verify of at least 1", place, "set --verify 1"
        )
    if options.output_file is not None:
        require_recipe_file(options.output_file, overwrite=options.overwrite)
    if options.adaptive_config is not None:
        require_writable(options.adaptive_config)
        require_free(options.adaptive_config, overwrite=options.overwrite)
    space = possible(side, algorithm, options.draft_tokens)
    if options.adaptive_config is not None:
        require_adaptive(algorithm, side.prepared.version, space)
    own = own_setting(side, algorithm)
    space = space if own is None or own in space else (*space, own)
    published = published_setting(side, algorithm)
    prompts = workload(options.workload, options.output_tokens, options.input_tokens)
    prompts = with_room(prompts, [side])
    protocol = Protocol(prompts, aim.concurrencies, options.requests, options.rounds)
    rounds = max(options.rounds, _LEAST_ROUNDS, options.verify_starts)
    require_starts("--verify-starts", options.verify_starts, rounds)
    blocks = 0 if side.prepared.cpu is not None else default_blocks(options.verify_starts)
    compared = (
        (blocks * options.verify + 1 if blocks else options.verify + 1) if options.verify else 0
    )
    return TuningTask(
        options=options,
        side=side,
        algorithm=algorithm,
        path=path,
        space=space,
        own=own,
        published=published if published in space else None,
        aim=aim,
        protocol=protocol,
        budget=budget(options.starts, options.minutes, compared * options.verify_starts),
        compared_rounds=rounds,
        blocks=blocks,
    )


def _show_starts(question: TuningTask) -> None:
    printer = out()
    limit = question.budget
    expected = _expected(question, ())
    printer.print(f"objective:  {question.aim}")
    printer.print(f"settings:   {len(question.space)} pass the rules")
    printer.print(f"starts:     at most {limit.tried} to try settings; the first:")
    for setting in first_settings(question.space, question.own, question.published):
        printer.print(f"              {setting}")
    if limit.verified:
        printer.print(
            f"            {limit.verified} to compare the best {question.options.verify} with the "
            f"recipe's setting in {question.compared_rounds} interleaved rounds each"
        )
    most = limit.tried * expected.start + expected.comparison
    least = "" if limit.seconds is None else f", stops after {limit.seconds / 60:g}"
    printer.print(f"minutes:    at most {most / 60:.0f}{least}")


def _best(question: TuningTask, memory: StoredStarts) -> tuple[DraftSetting, ...]:
    """Return at most `--verify` settings that rank above the recipe's own, best first.

    If `--verify` is 2 or more, they include the published setting unless it is the recipe's own.
    """
    trials = [trial for start in memory.starts for trial in start.trials]
    order = ranked(question.aim, trials)
    above = order[: order.index(question.own)] if question.own in order else order
    found, published = above[: question.options.verify], question.published
    if len(found) > 1 and published in order and published not in (*found, question.own):
        found = (*found[:-1], *(setting for setting in order if setting == published))
    return found


def _conclude(
    question: TuningTask, memory: StoredStarts, found: TuningVerdict | None, why: str
) -> ExitCode:
    trials = tuple(trial for start in memory.starts for trial in start.trials)
    winner = found.winner if found is not None else None
    change = _change(question, winner) if winner is not None else None
    refused: OutputRefusedError | None = None
    written = None
    try:
        written = _written(question, change)
    except OutputRefusedError as error:  # show the measurements first
        refused = error
    adaptive = None
    if question.options.adaptive_config is not None:
        adaptive = configuration(trial_models(question.aim, trials), question.space)
        checked(adaptive, question.side.prepared.python, question.side.environment)
        write_atomically(question.options.adaptive_config, json.dumps(adaptive, indent=1) + "\n")
    outcome = TuningOutcome(
        recipe=question.side.prepared.recipe.deployment.name,
        engine=question.side.prepared.version,
        algorithm=question.algorithm,
        objective=str(question.aim),
        own=question.own,
        published=question.published,
        order=ranked(question.aim, trials),
        trials=trials,
        failed=dict(memory.failed),
        verdict=found,
        compared_starts=question.options.verify_starts,
        ended=why,
        starts=memory.count,
        seconds=memory.seconds,
        overrides=() if winner is None else override_words(winner.setting),
        diff=_diff(change, question.side.prepared.recipe.deployment.args),
        written=written,
        adaptive=adaptive,
        adaptive_file=question.options.adaptive_config,
    )
    if question.options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(json_value(document(outcome))))
    else:
        show_outcome(out(), outcome)
    if refused is not None:
        raise refused
    return ExitCode.FAILED if found is not None and found.refused else ExitCode.CLEAN


def _change(question: TuningTask, winner: Compared) -> Tuned | None:
    comment = evidence(
        winner, question.aim, question.protocol.prompts.name, time.strftime("%Y-%m-%d")
    )
    try:
        return tuned(
            question.path,
            winner.setting,
            question.side.prepared.version,
            comment,
            question.options.config_dir,
        )
    except InputError as error:
        if question.options.write or question.options.output_file is not None:
            raise
        err_lines().print(f"cannot show a diff: {error}")
        return None


def _written(question: TuningTask, change: Tuned | None) -> Path | None:
    """Write the best setting and return the file; None if nothing was written.

    Raises OutputRefusedError if the rules find new errors in the result.
    """
    target = question.options.output_file or (
        change.path if change is not None and question.options.write else None
    )
    if change is None or target is None:
        return None
    same = target == change.path
    text = change.after if same else elsewhere(change, target, question.options.config_dir)
    version = question.side.prepared.catalogue.version
    how = configured(str(target), (version,), config_dirs=question.options.config_dir)
    how = replace(how, lookup=question.side.lookup)
    before = check_text(str(change.path), change.before, how, question.options.config_dir)
    after = check_text(str(target), text, how, question.options.config_dir)
    with reads.overlay({os.path.realpath(target): text.encode()}):
        require_sound(against(before, after), str(target), force=question.options.force)
    write_atomically(target, text)
    return target


def _diff(change: Tuned | None, args: Mapping[str, object]) -> str:
    if change is None:
        return ""
    hidden = [str(value) for name, value in args.items() if value and is_secret_argument(name)]
    return shown_diff(change.before, change.after, change.path.name, hidden).text


def tried(question: TuningTask, memory: StoredStarts) -> tuple[StoredStarts, str]:
    """Run and save trials within the budget; return all starts, and why the trials ended."""
    lines = err_lines()
    if memory.starts:
        lines.print(f"resuming: {len(memory.starts)} settings already measured")
    end_on_signals()
    with tempfile.TemporaryDirectory(prefix="speclaunch-tune-") as text, ExitStack() as stack:
        folder = Path(text)
        generator: SglangGenerator | None = None
        while True:
            setting, why = _next(question, memory)
            if setting is None:
                return memory, why
            lines.print(f"{memory.tried + 1}: {setting} ({why}){_left(question, memory)}")
            try:
                if generator is None:  # loaded once, at the first start
                    generator = _generator(question.side, folder)
                    stack.callback(generator.close)
                order = order_of(question.side, setting)
                starter, protocol = _starter(folder), question.protocol
                start = measure_setting(setting, order, starter, generator, protocol)
            except LaunchError as error:
                failed = {**memory.failed, str(setting): str(error)}
                memory = replace(memory, failed=failed)
                messages = [f"   not measured: {error}"]
            else:
                memory = replace(memory, starts=(*memory.starts, start))
                messages = _lines_of(start)
            memory.write()  # before printing: a user who sees the line may interrupt
            for line in messages:
                lines.print(line)


def _next(question: TuningTask, memory: StoredStarts) -> tuple[DraftSetting | None, str]:
    left = tuple(setting for setting in question.space if str(setting) not in memory.failed)
    trials = [trial for start in memory.starts for trial in start.trials]
    most = question.budget.tried - len(memory.failed)
    setting, why = next_trial(question.aim, left, question.own, trials, most, question.published)
    expected = _expected(question, memory.starts)
    if setting is not None and not expected.fits(question.budget, memory.seconds):
        return None, "another start would exceed --minutes"
    return setting, why


def _expected(question: TuningTask, starts: Sequence[TrialStart]) -> Expectation:
    protocol, limit = question.protocol, question.budget
    return expectation(question.side, protocol, limit, question.compared_rounds, starts)


def _left(question: TuningTask, memory: StoredStarts) -> str:
    if not memory.starts:
        return ""
    expected = _expected(question, memory.starts)
    left = (question.budget.tried - memory.tried) * expected.start + expected.comparison
    if question.budget.seconds is not None:
        left = min(left, question.budget.seconds - memory.seconds)
    return f", at most {math.ceil(left / _MINUTE)} min left"


def _lines_of(start: TrialStart) -> list[str]:
    several = len(start.trials) > 1
    return [
        f"   {trial.speed:.1f} tokens/s per request"
        f"{f' at {trial.concurrency}' if several else ''}, "
        f"acceptance length {trial.accept_length:.2f}, {1000 * trial.step_seconds:.1f} ms per step"
        for trial in start.trials
    ]


def _generator(side: LaunchedSide, folder: Path) -> SglangGenerator:
    return SglangGenerator(side.prepared.python, side.environment, folder, side.tokenizer)


def _starter(folder: Path) -> Callable[[EngineOrder], Any]:
    return lambda order: MeasuredEngine(order, folder / f"{order.port}.log")


def verified(
    question: TuningTask, memory: StoredStarts, best: Sequence[DraftSetting]
) -> tuple[StoredStarts, TuningVerdict | None]:
    """Compare the best settings with the recipe's own in alternating rounds.

    The verdict is None if there is nothing to compare or no time left. Raises LaunchError.
    """
    names, starts = tuple(map(str, best)), question.options.verify_starts
    earlier = memory.verified
    if earlier is not None and (earlier.settings, earlier.starts_each) == (names, starts):
        return memory, earlier.verdict
    if not best:
        return memory, None
    limit = question.budget.seconds
    if limit is not None and memory.seconds + _expected(question, memory.starts).comparison > limit:
        err_lines().print("no time left to compare the best settings (--minutes)")
        return memory, None
    schedule = _schedule(question, best)
    rounds = _compared(question, schedule, best)
    found = verdict(question.aim, question.protocol, best, rounds, starts)
    memory = replace(
        memory,
        verified=None if found.refused else Verified(names, starts, found),
        compared=memory.compared + schedule.starts_in_all,
    )
    memory.write()
    return memory, found


def _schedule(question: TuningTask, best: Sequence[DraftSetting]) -> Schedule:
    side, protocol = question.side, question.protocol
    own = replace(side.order(free_port()), name=OWN)
    return Schedule(
        (own, *(order_of(side, setting, str(setting)) for setting in best)),
        (protocol.prompts,),
        question.aim.concurrencies,
        question.compared_rounds,
        protocol.requests,
        question.blocks,
        question.options.verify_starts,
    )


def _compared(
    question: TuningTask, schedule: Schedule, best: Sequence[DraftSetting]
) -> list[Round]:
    side = question.side
    changed = [side.prepared.changed(setting.arguments) for setting in best]
    commands = [command(side.prepared), *map(command, changed)]
    name = side.prepared.recipe.deployment.name
    about = {"sides": [order.name for order in schedule.sides], "commands": commands}
    stored = begin_bench(name, key_of(commands, schedule), about, fresh=question.options.fresh)
    rounds = list(stored.rounds)
    due = [step for step in steps(schedule) if not step.is_done(rounds)]
    lines = err_lines()
    names = ", ".join(str(setting) for setting in best)
    lines.print(f"comparing with the recipe's own setting: {names}; {len(due)} rounds")
    if not due:
        return rounds
    generator = _generator(side, stored.directory)
    began = time.monotonic()
    try:
        for number, found in enumerate(
            measure(schedule, _starter(stored.directory), generator, lines.print, rounds), 1
        ):
            rounds.append(found)
            stored.write(rounds)
            left = (time.monotonic() - began) / number * (len(due) - number)
            lines.print(
                f"{number}/{len(due)} {found.side}: {found.throughput:.1f} tokens/s at "
                f"{found.concurrency}, about {math.ceil(left)} s left"
            )
    finally:
        generator.close()
    stored.write(rounds, {"tune": question.key})
    return rounds
