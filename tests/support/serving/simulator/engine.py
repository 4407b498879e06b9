"""The engine's memory, phase by phase, and the lines that it prints.

Written from the released sources: sglang 0.5.6 model_executor/model_runner.py
(profile_max_num_token, init_memory_pool), 0.5.10 model_runner_kv_cache_mixin.py:126-173 and 808,
0.5.23 mem_cache/kv_cache_configurator.py:3000-3119, model_executor/pool_configurator.py:259. What
graphs and activations take is nobody's formula: it is the truth of a case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from tests.support.serving.simulator import messages
from tests.support.serving.simulator.cases import Case
from tests.support.serving.simulator.models import Model


@dataclass(frozen=True)
class Start:
    """How one start went."""

    served: bool
    lines: tuple[str, ...]
    phase: str
    tokens: int = 0
    running: int = 0
    short_bytes: int = 0


class _OutOfMemory(Exception):
    def __init__(self, phase: str, lines: list[str], short: int = 0) -> None:
        self.phase, self.lines, self.short = phase, lines, short


@dataclass
class _Device:
    """A GPU: what is free, and what cannot be used of it."""

    total: int
    free: int
    fragments: float

    def take(self, size: int, phase: str, wrap: str | None = None) -> None:
        usable = int(self.free * (1 - self.fragments)) if phase != "weights" else self.free
        if size > usable:
            text = messages.out_of_memory(size, self.free, self.total)
            raise _OutOfMemory(phase, messages.failed(text, wrap), size - usable)
        self.free -= size


@dataclass
class _Run:
    case: Case
    plan: Plan
    fraction: float
    device: _Device
    said: messages.Said
    at_start: int = 0
    tokens: int = 0
    running: int = 0
    sizes: tuple[int, ...] = field(default=())

    @property
    def draft_first(self) -> bool:
        return self.plan.in_versions(">=0.5.14")

    def number(self, name: str, default: int = 0) -> int:
        value = self.plan.value(name)
        return default if value is None else int(value)


def start(case: Case, plan: Plan) -> Start:
    """One start of the engine with a plan, and the traffic that follows."""
    total = (case.hardware.memory_mib or 0) << 20
    truth = case.truth
    free = total - truth.context_bytes - truth.link_bytes - truth.others_bytes
    fraction = float(plan.value("mem_fraction_static"))
    run = _Run(
        case, plan, fraction, _Device(total, free, truth.fragments), messages.Said(case.version)
    )
    run.said.arguments(plan)
    try:
        _start(run)
        _serve(run)
    except _OutOfMemory as ended:
        lines = (*run.said.lines, *ended.lines, *messages.DEATH)
        return Start(False, lines, ended.phase, run.tokens, run.running, ended.short)
    return Start(True, tuple(run.said.lines), "serve", run.tokens, run.running)


def _start(run: _Run) -> None:
    run.at_start = run.device.free
    _load(run, run.case.target, run.case.truth.weights)
    if run.draft_first and run.case.draft is not None:
        _load(run, run.case.draft, run.case.truth.draft)
    _pool(run)
    if run.draft_first:
        _draft_pool(run)
        run.said.pool_end(run.device.free)
    else:
        run.said.pool_end(run.device.free)
    run.sizes = captured_sizes(run.plan)
    _capture(run, run.case.target, "target")
    if not run.draft_first and run.case.draft is not None:
        _load(run, run.case.draft, run.case.truth.draft)
        _draft_pool(run)
        run.said.pool_end(run.device.free)
    if run.case.draft is not None:
        _capture(run, run.case.draft, "draft")
    run.said.summary(run.plan, run.tokens, run.running, run.device.free)


def _load(run: _Run, model: Model, factor: float) -> None:
    ranks = run.number("tp_size", 1)
    before = run.device.free
    run.said.load_begin(before)
    size = int(model.weight_bytes * factor / ranks)
    run.device.take(size, "weights" if model is run.case.target else "draft weights")
    run.said.load_end(model.architecture, before, run.device.free)


def _cell(run: _Run, model: Model) -> int:
    """Bytes of the KV cache for one token on one rank."""
    ranks = run.number("tp_size", 1)
    wide = 1 if str(run.plan.value("kv_cache_dtype")).startswith("fp8") else 2
    return max(1, model.kv_heads // ranks) * model.head_dim * 2 * model.layers * wide


def _pool(run: _Run) -> None:
    rest = run.device.free - run.at_start * (1 - run.fraction)
    if run.draft_first and rest <= 0:
        text = messages.nothing_left(run.fraction, run.at_start, run.device.free)
        raise _OutOfMemory("pool", messages.failed(text))
    cell = _cell(run, run.case.target)
    draft, algorithm = run.case.draft, run.plan.algorithm
    if run.draft_first and draft is not None:
        # the draft is taken for layers of the target's size (pool_configurator.py:259)
        cell += int(cell * draft.layers / run.case.target.layers)
    tokens = int(rest // cell)
    context = run.number("context_length") or run.case.target.context
    estimated = max(min(int(tokens / context * 512), 4096), 2048)
    asked = run.number("max_running_requests")
    running = min(asked, tokens // 2 if run.draft_first else estimated)
    if run.plan.in_versions("<0.5.7") and algorithm in ("EAGLE", "EAGLE3", "STANDALONE"):
        each = run.number("speculative_num_steps") * run.number("speculative_eagle_topk")
        tokens += running * (each + run.number("speculative_num_draft_tokens")) + 100
    most = run.plan.value("max_total_tokens")
    tokens = min(tokens, int(most)) if most is not None else tokens
    tokens = tokens // run.number("page_size", 1) * run.number("page_size", 1)
    if tokens <= 0:
        text = messages.not_enough(run.case.version, run.fraction)
        raise _OutOfMemory("pool", messages.failed(text))
    run.tokens, run.running = tokens, running
    run.device.take(running * (context + 4) * 4, "pool")
    run.device.take(tokens * _cell(run, run.case.target), "pool")
    run.said.pool(tokens, tokens * _cell(run, run.case.target))


def _draft_pool(run: _Run) -> None:
    if run.case.draft is None:
        return
    size = run.tokens * _cell(run, run.case.draft)
    run.device.take(size, "draft pool")
    run.said.pool(run.tokens, size)


def _capture(run: _Run, model: Model, role: str) -> None:
    """Each graph has its nodes, and the largest batch its tensors, which the others share."""
    if run.plan.value("disable_cuda_graph") or not run.sizes:
        return
    before = run.device.free
    truth, ranks = run.case.truth, run.number("tp_size", 1)
    drafts = run.number("speculative_num_draft_tokens", 1)
    topk = run.number("speculative_eagle_topk", 1)
    rows = max(run.sizes) * (drafts if role == "target" else max(topk, drafts))
    steps = 1 if role == "target" else run.number("speculative_num_steps", 1)
    vocab = model.draft_vocab or model.vocab
    row = 4 * model.hidden * 2 + 3 * model.width * 2 // ranks + vocab * 6 // ranks
    nodes = len(run.sizes) * model.layers * steps * truth.graph_each
    run.said.capture_begin(role, run.sizes, before)
    run.device.take(
        int(nodes + rows * row * truth.graphs),
        "capture",
        messages.capture_failed(run.case.version),
    )
    if role == "target" and run.plan.value("cuda_graph_bs_prefill") and run.draft_first:
        _capture_prefill(run, model)
    run.said.capture_end(role, run.sizes, before, run.device.free)


def _capture_prefill(run: _Run, model: Model) -> None:
    if run.plan.value("cuda_graph_backend_prefill") in (None, "disabled"):
        return
    count = len(run.plan.value("cuda_graph_bs_prefill"))
    run.device.take(int(count * model.layers * run.case.truth.graph_each / 3), "capture")


def _serve(run: _Run) -> None:
    """The largest prefill, a full batch of verification, and the longest request."""
    run.said.ready()
    truth, target, ranks = run.case.truth, run.case.target, run.number("tp_size", 1)
    chunk = run.number("chunked_prefill_size", -1)
    tokens = chunk if chunk > 0 else run.number("max_prefill_tokens", 16384)
    row = 2 * (4 * target.hidden + 3 * target.width // ranks)
    size = int(tokens * row * truth.activations) + truth.workspace_bytes
    covered = max(run.sizes, default=0)
    eager = max(0, run.running - covered)
    drafts = run.number("speculative_num_draft_tokens", 1)
    size += int(eager * drafts * (row + target.vocab * 6 // ranks))
    run.device.take(size, "serve")
    needed = min(truth.request_tokens, run.number("context_length") or target.context)
    if run.tokens < needed + drafts * 2:
        raise _OutOfMemory("traffic", messages.failed(messages.retracted(run.case.version)))


def with_fraction(changes: Mapping[str, Any], fraction: float) -> dict[str, Any]:
    """Changes at a fraction."""
    return {**changes, "mem_fraction_static": round(fraction, 3)}
