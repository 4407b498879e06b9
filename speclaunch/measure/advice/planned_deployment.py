"""Contents of a plan report: the plan, its command, the engine check, and advice.

A report also shows which decode batch sizes a CUDA graph covers, and the cost of padding.
"""

from __future__ import annotations

import contextlib
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    CheckedRequest,
    Contradiction,
    Finding,
    Lookup,
    Rule,
    RuleResults,
    Severity,
    SkippedRule,
    check_plan,
    check_request,
    decodes_without_graphs,
    engine_findings,
    in_order,
    interpreter,
    runs_on_cpu,
    unsilenced,
    with_engine_values,
)
from speclaunch.core import HIDDEN, InputError, SpeclaunchError
from speclaunch.deployments import Prepared, fit_limits
from speclaunch.engine import (
    OBJECTIVE,
    Best,
    EffectiveArgument,
    Fit,
    Hardware,
    Margins,
    MemoryBudget,
    Plan,
    Request,
    RequestLoad,
    Suggestion,
    UnknownValueError,
    Vendor,
    attention_ranks,
    best_for,
    beyond_the_gpus,
    canonical,
    captured_sizes,
    effective_arguments,
    gpus_needed,
    is_secret_text,
    load_of,
    margins,
    memory_verdict,
    resolve,
    shell_command,
    suggest_fit,
)
from speclaunch.serving import recipe_diff

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier


class PlannedCommand(Struct, frozen=True):
    """Launch command; secrets are redacted or read from variables."""

    text: str
    """Text that `launch --dry-run` prints."""
    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    lines: tuple[str, ...]
    """Lines of one variable, program or argument each, for comparison."""
    notes: tuple[str, ...] = ()


def command_of(prepared: Prepared) -> PlannedCommand:
    """Return the launch command that a dry run shows."""
    rendered = prepared.rendered_args
    notes = [f"{prepared.recipe.deployment.name} for SGLang {prepared.version}", *rendered.notes]
    text = shell_command(prepared.program, rendered.arguments, prepared.overlay, notes=notes)
    argv = list(prepared.program)
    for argument in rendered.arguments:
        is_hidden = argument.secret or any(map(is_secret_text, argument.values))
        argv += [argument.flag, HIDDEN] if is_hidden else argument.tokens
    hidden = set(prepared.secrets)
    bare = shell_command(prepared.program, rendered.arguments, prepared.overlay)
    return PlannedCommand(
        text,
        tuple(argv),
        {name: HIDDEN if v in hidden else v for name, v in prepared.overlay.items()},
        tuple(line.strip() for line in bare.rstrip("\n").split(" \\\n")),
        tuple(rendered.notes),
    )


class Fitting(Struct, frozen=True):
    """Suggested settings, and how to apply them."""

    suggestion: Suggestion
    diff: tuple[str, ...] = ()
    """Changed lines of the recipe's `args`, prefixed with `- ` or `+ `."""
    overrides: tuple[str, ...] = ()
    """The changes as overrides to append to a command line."""
    command: str | None = None
    """Command with the changes; None if there are none."""

    @property
    def head(self) -> str:
        if self.suggestion.fit is Fit.UNKNOWN:
            return "fitting settings are unknown"
        if self.suggestion.fit is Fit.FAILS:
            return "no settings fit"
        if self.suggestion.fit is Fit.TIGHT:
            settings = "these settings fit" if self.suggestion.changes else "it fits unchanged"
            return f"{settings} only in the best case"
        if not self.suggestion.changes:
            return "it fits unchanged"
        before = self.suggestion.before.fit
        return "these settings fit better" if before is Fit.FITS else "these settings fit"


def fitting(prepared: Prepared, plan: Plan) -> Fitting:
    """Suggest settings that fit in memory, changing only what recovery may change."""
    beyond = beyond_the_gpus(plan)
    if beyond is not None:
        return Fitting(Suggestion(Fit.FAILS, beyond, OBJECTIVE, MemoryBudget(Fit.FAILS, beyond)))
    try:
        limits = fit_limits(prepared.recipe.deployment.recovery)
        found = suggest_fit(_plan_with(prepared, plan), limits=limits)
    except (SpeclaunchError, UnknownValueError) as error:
        why = str(error)
        unknown = MemoryBudget(Fit.UNKNOWN, why, unknown=(why,))
        return Fitting(Suggestion(Fit.UNKNOWN, why, OBJECTIVE, unknown))
    return Fitting(found, *_shown(prepared, found.arguments))


class Advice(Struct, frozen=True):
    """The best settings for a load, and how to apply them."""

    best: Best
    diff: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    command: str | None = None
    """Command with the settings; None if they change nothing."""

    @property
    def head(self) -> str:
        if self.best.fit is Fit.UNKNOWN:
            return "the best settings are unknown"
        if self.best.fit is Fit.FITS:
            return "the complete load fits"
        if self.best.fit is Fit.TIGHT:
            return "the complete load fits only in the best case"
        return "part of the load fits" if self.best.requests else "the load does not fit"


def advice(
    prepared: Prepared, plan: Plan, requests: int | None = None, context: int | None = None
) -> Advice:
    """Return the best settings for a load. See `load_of` for the meaning of None.

    Raises InputError if the model does not support the load.
    """
    load = RequestLoad(requests or 0, context or 0)
    beyond = beyond_the_gpus(plan)
    if beyond is not None:
        return Advice(Best(Fit.FAILS, beyond, load))
    try:
        load = load_of(plan, requests, context)
        found = best_for(load, _plan_with(prepared, plan))
    except ValueError as error:
        raise InputError(
            str(error),
            help="lower --context, or raise args.context_length if the model allows that",
        ) from None
    except (SpeclaunchError, UnknownValueError) as error:
        return Advice(Best(Fit.UNKNOWN, str(error), load))
    if found.fit is Fit.UNKNOWN or not found.requests:
        return Advice(found)
    args = prepared.recipe.deployment.args
    changes = {
        name: value
        for name, value in found.changes.items()
        if args.get(name) != value and not (value is None and name not in plan.request.values)
    }
    return Advice(found, *_shown(prepared, changes))


def _plan_with(prepared: Prepared, plan: Plan) -> Callable[[Mapping[str, Any]], Plan]:
    return lambda changes: resolve(prepared.changed(changes).request(os.environ), plan.facts)


def _shown(
    prepared: Prepared, changes: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Return changes as recipe lines, as overrides, and as a command (None without changes)."""
    deployment = prepared.recipe.deployment
    command = command_of(prepared.changed(changes)).text if changes else None
    lines = tuple(recipe_lines(changes, deployment.args))
    return lines, tuple(recipe_diff(changes, deployment)), command


def recipe_lines(changes: Mapping[str, Any], args: Mapping[str, Any]) -> list[str]:
    """Return changes as lines of a recipe's `args`, prefixed with `- ` or `+ `."""
    lines = []
    for name, value in changes.items():
        written = [
            other
            for other, old in args.items()
            if old is not None and canonical(other) == canonical(name)
        ]
        lines += [f"- {other}: {_yaml(args[other])}" for other in written]
        lines.append(f"+ {written[0] if written else name}: {_yaml(value)}")
    return lines


def _yaml(value: Any) -> str:
    """Return a value as YAML: plain words unquoted, anything else as JSON."""
    if isinstance(value, str) and value.replace("_", "").replace(".", "").isalnum():
        return value
    return json.dumps(value, ensure_ascii=False)


class EngineCheck(Struct, frozen=True):
    """A release's response to a plan."""

    release: str
    accepted: bool | None
    """True if the release accepts the plan, False if it rejects it, None if unknown (see `why`)."""
    why: str = ""
    filled: tuple[str, ...] = ()
    """Arguments whose unknown values the engine provided."""
    contradictions: tuple[Contradiction, ...] = ()


def examined_with(
    examined: CheckedRequest, asker: EngineQuerier, rules: Iterable[Rule], python: str | None = None
) -> tuple[CheckedRequest, EngineCheck | None]:
    """Query the engine; return the checked plan and the response (None if not queried).

    Rules that lacked a value run again with the engine's value. Raises NoJudgeError.
    """
    opinion = asker.opinion(examined.plan, interpreter(python), examined.results.blamed)
    if opinion is None:
        return examined, None
    merged = with_engine_values(examined.plan, opinion)
    results = examined.results
    if merged.plan is not examined.plan:
        results = check_plan(merged.plan, rules).results
    more = engine_findings(opinion, merged.plan, results.findings)
    has_answer = opinion.accepted or opinion.refusal is not None
    return (
        CheckedRequest(
            merged.plan,
            RuleResults(
                tuple(sorted((*results.findings, *more.findings), key=in_order)),
                (*results.skipped, *more.skipped),
            ),
        ),
        EngineCheck(
            opinion.release,
            opinion.accepted if has_answer else None,
            opinion.why if opinion.refusal is None else opinion.refusal.words,
            merged.filled,
            merged.contradictions,
        ),
    )


class BatchCoverage(StrEnum):
    """Decode mode of a batch size."""

    CAPTURED = "captured"
    """Decoded by a graph of its exact size."""
    PADDED = "padded"
    """Decoded by the graph of the next larger size, with padding."""
    UNCOVERED = "uncovered"
    """Decoded without a graph, kernel by kernel."""


class BatchSpan(Struct, frozen=True):
    """Consecutive batch sizes with one mode. `size`: graph size if `first` is `last`, else None."""

    first: int
    last: int
    covered: BatchCoverage
    size: int | None = None


class Coverage(Struct, frozen=True):
    """Captured graph sizes of one scheduler. `most`: maximum number of running requests."""

    sizes: tuple[int, ...]
    most: int
    pads: bool = True
    """False if `disable_cuda_graph_padding` keeps a batch from using a larger graph."""
    note: str = ""

    def graph_for(self, batch: int) -> int | None:
        """Return the size of the graph that runs a batch; None if no graph does."""
        place = bisect_left(self.sizes, batch)
        if place == len(self.sizes) or (not self.pads and self.sizes[place] != batch):
            return None
        return self.sizes[place]

    def covered(self, batch: int) -> BatchCoverage:
        size = self.graph_for(batch)
        if size is None:
            return BatchCoverage.UNCOVERED
        return BatchCoverage.CAPTURED if size == batch else BatchCoverage.PADDED

    def waste(self, batch: int) -> float:
        """Return a batch's share of padding, 0 to 1; 0 without a graph."""
        size = self.graph_for(batch)
        return 0.0 if size is None else (size - batch) / size

    def count(self, covered: BatchCoverage) -> int:
        return sum(self.covered(batch) is covered for batch in range(1, self.most + 1))

    @property
    def average_waste(self) -> float:
        """Average padding share over the batch sizes that have a graph."""
        run = [batch for batch in range(1, self.most + 1) if self.graph_for(batch)]
        return sum(map(self.waste, run)) / len(run) if run else 0.0

    @property
    def worst(self) -> int | None:
        batch = max(range(1, self.most + 1), key=self.waste, default=1)
        return batch if self.waste(batch) else None

    def spans(self) -> Iterator[BatchSpan]:
        """Yield all batch sizes as spans of one mode and, if padded, one graph size."""

        def kind(batch: int) -> tuple[BatchCoverage, int | None]:
            mode = self.covered(batch)
            return mode, self.graph_for(batch) if mode is BatchCoverage.PADDED else None

        for (mode, _), batches in groupby(range(1, self.most + 1), kind):
            first, *rest = batches
            size = None if rest else self.graph_for(first)
            yield BatchSpan(first, rest[-1] if rest else first, mode, size)


class NoCoverage(Struct, frozen=True):
    """Reason why no coverage is shown. `unknown`: True if a fact is missing."""

    why: str
    unknown: bool = False


_LARGEST = 100_000
"""Largest batch size for which coverage is computed; a larger request limit is probably a typo."""


def coverage(plan: Plan, running: int | None = None) -> Coverage | NoCoverage:
    """Return the graph coverage of decode batch sizes, or the reason why none is shown.

    `running`: requests that fit in memory, used if the plan sets no limit.
    """
    try:
        if runs_on_cpu(plan):
            return NoCoverage("a CPU has no CUDA graphs")
        if decodes_without_graphs(plan):
            return NoCoverage("decode runs without CUDA graphs: they are disabled")
        sizes = tuple(sorted(captured_sizes(plan)))
        limit = plan.value("max_running_requests")
        pads = not plan.value("disable_cuda_graph_padding")
        ranks = attention_ranks(plan)
    except UnknownValueError as error:
        return NoCoverage(str(error), unknown=True)
    if not sizes:
        return NoCoverage("no batch size gets a CUDA graph")
    total, note = (int(limit), "") if limit is not None else (running, "")
    if total is None:
        total = sizes[-1] * ranks
        note = "maximum running requests unknown: shown up to the largest graph"
    most = min(max(1, total // ranks), _LARGEST)
    if ranks > 1:
        note = f"{note}{'; ' if note else ''}for each of {ranks} data-parallel ranks"
    return Coverage(sizes, most, pads, note)


class LoadRequest(Struct, frozen=True):
    """Load set by the user. None: the default of `load_of`."""

    requests: int | None = None
    context: int | None = None


class PlannedDeployment(Struct, frozen=True):
    """A plan with its memory, graphs, findings, and command."""

    label: str
    """Recipe, role or command name, with overrides if needed to distinguish plans."""
    name: str
    description: str
    path: str
    version: str
    hardware: str | None
    hardware_note: str
    """Note about the hardware, for example that this machine has none."""
    plan: Plan
    rows: tuple[EffectiveArgument, ...]
    budget: MemoryBudget
    coverage: Coverage | NoCoverage
    findings: tuple[Finding, ...]
    skipped: tuple[SkippedRule, ...]
    command: PlannedCommand
    fitting: Fitting | None = None
    """Settings that fit; None unless requested."""
    margins: Margins | None = None
    """Largest memory fractions that certainly, probably or possibly work; None if unknown."""
    advice: Advice | None = None
    """Best settings for a load; None unless requested."""
    engine_check: EngineCheck | None = None
    """Result of the engine check; None if it did not run."""

    @property
    def fails(self) -> bool:
        return self.budget.fit is Fit.FAILS or self.count(Severity.ERROR) > 0

    @property
    def short_of_gpus(self) -> bool:
        """True if the deployment fails because ranks have no GPU, regardless of memory."""
        return beyond_the_gpus(self.plan) is not None

    @property
    def unanswered(self) -> str | None:
        """Reason why `--fit` or `--best` has no result; None if it has one or was not requested."""
        if self.fitting is not None and self.fitting.suggestion.fit is Fit.UNKNOWN:
            return self.fitting.suggestion.why
        if self.advice is not None and self.advice.best.fit is Fit.UNKNOWN:
            return self.advice.best.why
        return None

    @property
    def shown_command(self) -> str:
        """Command to run, including the changes of `--fit` or `--best`."""
        changed = [advice.command for advice in (self.advice, self.fitting) if advice is not None]
        return next((text for text in changed if text is not None), self.command.text)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def planned(
    prepared: Prepared,
    lookup: Lookup,
    rules: Iterable[Rule],
    *,
    label: str,
    hardware_note: str = "",
    fit: bool = False,
    requested_load: LoadRequest | None = None,
    inherited: Mapping[str, str] | None = None,
    asker: EngineQuerier | None = None,
) -> PlannedDeployment:
    """Return the plan of a recipe with its memory, findings, command and engine check.

    Raises NoJudgeError if the engine check is required but cannot run.
    """
    request = prepared.request(os.environ if inherited is None else inherited)
    recipe = prepared.recipe
    found = planned_request(
        request,
        lookup,
        rules,
        label=label,
        path=str(recipe.path),
        command=command_of(prepared),
        hardware_note=hardware_note,
        asker=asker,
        python=prepared.python,
    )
    return replace(
        found,
        name=recipe.deployment.name,
        description=recipe.deployment.description,
        version=prepared.version,
        fitting=fitting(prepared, found.plan) if fit else None,
        advice=None
        if requested_load is None
        else advice(prepared, found.plan, requested_load.requests, requested_load.context),
    )


def planned_request(
    request: Request,
    lookup: Lookup,
    rules: Iterable[Rule],
    *,
    label: str,
    path: str,
    command: PlannedCommand,
    hardware_note: str = "",
    asker: EngineQuerier | None = None,
    python: str = "",
) -> PlannedDeployment:
    """Return the plan of a request in file `path`. Raises NoJudgeError as `planned` does."""
    rules = tuple(rules)
    examined, engine_check = check_request(request, lookup, rules), None
    if asker is not None:
        examined, engine_check = examined_with(examined, asker, rules, python)
    plan = examined.plan
    found = memory_verdict(plan)
    hardware = plan.facts.hardware
    return PlannedDeployment(
        label=label,
        name=label,
        description="",
        path=path,
        version=request.version,
        hardware=None if hardware is None else _named(hardware, plan),
        hardware_note=hardware_note,
        plan=plan,
        rows=effective_arguments(plan),
        budget=found,
        coverage=coverage(plan, found.running_requests),
        findings=tuple(unsilenced(examined.results.findings, Path(path))),
        skipped=examined.results.skipped,
        command=command,
        margins=_margins(plan),
        engine_check=engine_check,
    )


def _margins(plan: Plan) -> Margins | None:
    """Return the memory margins; None if they cannot be computed.

    Errors are ignored: the budget reports them.
    """
    if beyond_the_gpus(plan) is not None:
        return None
    with contextlib.suppress(Exception):
        return margins(plan)
    return None


def _named(hardware: Hardware, plan: Plan) -> str:
    """Return the hardware as a `--hardware` value. Without a GPU count, the plan's is used."""
    if hardware.vendor is Vendor.CPU:
        return "cpu"
    count = hardware.known_count
    if count is None:
        try:
            count = gpus_needed(plan)
        except UnknownValueError:
            return hardware.name
    return f"{hardware.name}:{count}"
