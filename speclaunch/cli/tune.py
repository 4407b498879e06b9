"""`speclaunch tune`: which settings of speculation are fastest here."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from speclaunch import reads
from speclaunch.bench.room import with_room
from speclaunch.bench.sides import Asked, candidate
from speclaunch.bench.workload import workload
from speclaunch.cli.bench_sides import default_blocks, require_starts, tell_replaced
from speclaunch.cli.check_options import lookup
from speclaunch.cli.measure_options import TuneOptions
from speclaunch.cli.options import OutputFormat
from speclaunch.cli.tuning_starts import Question, tried, verified
from speclaunch.cli.writing import OutputRefusedError, require_sound
from speclaunch.engine.command import is_secret_argument
from speclaunch.errors import COMMAND_LINE, ExitCode, InputError, LaunchError, Place, Problem
from speclaunch.fix.edits import shown_diff, write_atomically
from speclaunch.fixing.output_check import against, check_text, configured
from speclaunch.recipe.find_recipe import find_recipe, split_recipe
from speclaunch.report.console import err_lines, out
from speclaunch.report.tuning import Outcome, document, evidence, show_outcome
from speclaunch.tuning.adaptive import checked, configuration, require_adaptive
from speclaunch.tuning.budget import budget, expectation
from speclaunch.tuning.objective import known, objective
from speclaunch.tuning.search import first_settings, ranked
from speclaunch.tuning.setting import Setting
from speclaunch.tuning.space import algorithm_of, override_words, own_setting, possible
from speclaunch.tuning.trials import KeptStarts, Protocol, kept
from speclaunch.tuning.verification import Verdict
from speclaunch.tuning.writing import Tuned, elsewhere, require_own, tuned

_LEAST_ROUNDS = 12
"""Of each side of the comparison."""


def tune(options: TuneOptions) -> ExitCode:
    """Try settings until none is predicted to be better, and compare the best with the recipe's
    own. Raises InputError, LaunchError."""
    question = _question(options)
    if options.dry_run:
        _show_starts(question)
        return ExitCode.CLEAN
    memory = kept(question.key, fresh=options.fresh)
    memory, why = tried(question, memory)
    if not memory.starts:
        said = next(iter(memory.failed.values()), why)
        raise LaunchError(f"no setting could be measured: {said}", help=f"see {memory.path}")
    memory, found = verified(question, memory, _best(question, memory))
    return _told(options, question, memory, found, why)


def _question(options: TuneOptions) -> Question:
    aim = objective(options.objective)
    asked = Asked(
        options.config_dir,
        options.engine,
        lookup(options.models, options.hardware),
        dry_run=options.dry_run,
    )
    side = candidate(options.overrides, asked)
    tell_replaced(side)
    algorithm = algorithm_of(side)
    name, _ = split_recipe(options.overrides)
    path = find_recipe(name, options.config_dir)
    if options.write:
        require_own(path, options.overrides)
    if (options.write or options.output_file) and not options.verify:
        place = Place(COMMAND_LINE, text="--verify 0")
        raise InputError(Problem("what is not compared is not written", place, "--verify 1"))
    _require_files(options)
    space = possible(side, algorithm, options.draft_tokens)
    if options.adaptive_config is not None:
        require_adaptive(algorithm, side.prepared.version, space)
    own = own_setting(side, algorithm)
    space = space if own is None or own in space else (*space, own)
    prompts = workload(options.workload, options.output_tokens, options.input_tokens)
    prompts = with_room(prompts, [side])
    protocol = Protocol(prompts, aim.concurrencies, options.requests, options.rounds)
    rounds = max(options.rounds, _LEAST_ROUNDS, options.verify_starts)
    require_starts("--verify-starts", options.verify_starts, rounds)
    blocks = 0 if side.prepared.cpu is not None else default_blocks(options.verify_starts)
    compared = (
        (blocks * options.verify + 1 if blocks else options.verify + 1) if options.verify else 0
    )
    return Question(
        side=side,
        algorithm=algorithm,
        path=path,
        space=space,
        own=own,
        aim=aim,
        protocol=protocol,
        budget=budget(options.starts, options.minutes, compared * options.verify_starts),
        compared=options.verify,
        compared_rounds=rounds,
        compared_starts=options.verify_starts,
        blocks=blocks,
        fresh=options.fresh,
    )


def _require_files(options: TuneOptions) -> None:
    """What is to be written at the end can be: known before the first start."""
    files = (("--output-file", options.output_file), ("--adaptive-config", options.adaptive_config))
    for option, path in files:
        if path is None:
            continue
        place = Place(COMMAND_LINE, text=f"{option} {path}")
        if option == "--output-file" and path.suffix != ".yaml":
            raise InputError(Problem(f"{path}: the name of a recipe must end in .yaml", place))
        if path.exists() and not options.overwrite:
            help_ = "name another file, or replace it: --overwrite"
            raise InputError(Problem(f"{path} already exists", place, help_))
        if not path.parent.is_dir():
            raise InputError(Problem(f"{path.parent}: no such directory", place, "create it"))


def _show_starts(question: Question) -> None:
    told = out()
    limit = question.budget
    expected = expectation(question.side, question.protocol, limit, question.compared_rounds, ())
    told.print(f"objective:  {question.aim}", markup=False, highlight=False)
    told.print(f"settings:   {len(question.space)} pass the rules", highlight=False)
    told.print(f"starts:     {limit.tried} at most that try settings, first", highlight=False)
    for one in first_settings(question.space, question.own):
        told.print(f"              {one}", markup=False, highlight=False)
    if limit.verified:
        told.print(
            f"            {limit.verified} to compare the best {question.compared} with the "
            f"recipe's own, {question.compared_rounds} rounds of each in turn",
            highlight=False,
        )
    most = limit.tried * expected.start + expected.comparison
    least = "" if limit.seconds is None else f", ended after {limit.seconds / 60:g}"
    told.print(f"minutes:    {most / 60:.0f} at the slowest{least}", highlight=False)


def _best(question: Question, memory: KeptStarts) -> tuple[Setting, ...]:
    """Those that are compared with the recipe's own: the best, as long as they are above it."""
    trials = [one for start in memory.starts for one in start.trials]
    order = ranked(question.aim, trials)
    above = order[: order.index(question.own)] if question.own in order else order
    return above[: question.compared]


def _told(
    options: TuneOptions, question: Question, memory: KeptStarts, found: Verdict | None, why: str
) -> ExitCode:
    trials = tuple(one for start in memory.starts for one in start.trials)
    winner = found.winner if found is not None else None
    change = _change(options, question, found) if winner is not None else None
    refused: OutputRefusedError | None = None
    written = None
    try:
        written = _written(options, question, change)
    except OutputRefusedError as error:  # what was measured is shown all the same
        refused = error
    adaptive = None
    if options.adaptive_config is not None:
        adaptive = configuration(known(question.aim, trials), question.space)
        checked(adaptive, question.side.prepared.python, question.side.environment)
        write_atomically(options.adaptive_config, json.dumps(adaptive, indent=1) + "\n")
    outcome = Outcome(
        recipe=question.side.prepared.recipe.deployment.name,
        engine=question.side.prepared.version,
        algorithm=question.algorithm,
        objective=str(question.aim),
        own=question.own,
        order=ranked(question.aim, trials),
        trials=trials,
        failed=dict(memory.failed),
        verdict=found,
        compared_starts=question.compared_starts,
        ended=why,
        starts=memory.count,
        seconds=memory.seconds,
        overrides=() if winner is None else override_words(winner.setting, question.algorithm),
        diff=_diff(change, question.side.prepared.recipe.deployment.args),
        written=written,
        adaptive=adaptive,
        adaptive_file=options.adaptive_config,
    )
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(document(outcome)))
    else:
        show_outcome(out(), outcome)
    if refused is not None:
        raise refused
    return ExitCode.FAILED if found is not None and found.refused else ExitCode.CLEAN


def _change(options: TuneOptions, question: Question, found: Verdict | None) -> Tuned | None:
    winner = found.winner if found is not None else None
    if winner is None:
        return None
    said = evidence(winner, question.aim, question.protocol.prompts.name, time.strftime("%Y-%m-%d"))
    try:
        return tuned(
            question.path,
            winner.setting,
            question.algorithm,
            question.side.prepared.version,
            said,
            options.config_dir,
        )
    except InputError as error:
        if options.write or options.output_file is not None:
            raise
        err_lines().print(f"no diff: {error}")
        return None


def _written(options: TuneOptions, question: Question, change: Tuned | None) -> Path | None:
    """The file that was written, if any. Raises OutputRefusedError for errors of the setting."""
    target = options.output_file or (change.path if change is not None and options.write else None)
    if change is None or target is None:
        return None
    same = target == change.path
    text = change.after if same else elsewhere(change, target, options.config_dir)
    version = question.side.prepared.catalogue.version
    how = configured(str(target), (version,), config_dirs=options.config_dir)
    how = replace(how, lookup=question.side.lookup)
    before = check_text(str(change.path), change.before, how, options.config_dir)
    after = check_text(str(target), text, how, options.config_dir)
    with reads.instead({os.path.realpath(target): text.encode()}):
        require_sound(against(before, after), str(target), force=options.force)
    write_atomically(target, text)
    return target


def _diff(change: Tuned | None, args: Mapping[str, object]) -> str:
    if change is None:
        return ""
    hidden = [str(value) for name, value in args.items() if value and is_secret_argument(name)]
    return shown_diff(change.before, change.after, change.path.name, hidden).text
