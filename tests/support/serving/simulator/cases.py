"""Random deployments: model, draft, GPUs, engine version, settings, and the truth about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import Gpu, Hardware, OtherProcess, declare
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.command import render_args
from tests.support.serving.simulator.models import (
    STANDALONE_DRAFTS,
    TARGETS,
    Model,
    one_layer_draft,
)

GIB = 1 << 30
MIB = 1 << 20

VERSIONS = (
    "0.5.3.post3",
    "0.5.6.post2",
    "0.5.9",
    "0.5.10.post1",
    "0.5.12.post1",
    "0.5.13.post1",
    "0.5.14",
    "0.5.17",
    "0.5.20",
    "0.5.23",
)
GPUS = ("l4", "rtx4090", "a100-40gb", "l40s", "a100-80gb", "h100-80gb", "h200", "b200")
TREES = ((5, 8, 64), (3, 4, 16), (5, 4, 8), (7, 10, 60), (3, 1, 4), (2, 1, 3), (5, 1, 6))


class Truth(Struct, frozen=True):
    """What nobody knows before the start: by how much the memory differs from any estimate."""

    context_bytes: int
    """CUDA context and libraries."""
    link_bytes: int
    """NCCL and what else ranks share."""
    others_bytes: int
    """Other processes on the GPU, whether or not anybody has been told of them."""
    weights: float
    """Factor on the weights (padding, scales, buffers of a model)."""
    draft: float
    graph_each: int
    """Bytes of one graph for one layer."""
    graphs: float
    """Factor on what the largest captured batch needs."""
    activations: float
    workspace_bytes: int
    """Of attention backends and libraries."""
    fragments: float
    """Share of the free memory that allocations cannot use."""
    request_tokens: int
    """The longest request of the traffic, prompt and answer."""


class Case(Struct, frozen=True):
    """One deployment."""

    number: int
    version: str
    target: Model
    draft: Model | None
    hardware: Hardware
    args: Mapping[str, Any]
    truth: Truth

    def planner(self) -> Callable[[Mapping[str, Any]], Plan]:
        """Resolves the deployment with arguments changed."""
        catalogue = load(self.version)
        draft = self.draft.checkpoint() if self.draft is not None else None
        facts = Facts(self.target.checkpoint(), draft, self.hardware)

        def plan_with(changes: Mapping[str, Any]) -> Plan:
            spelling = render_args({**self.args, **changes}, {}, catalogue)
            assert not spelling.problems, spelling.problems
            words = [word for argument in spelling.arguments for word in argument.tokens]
            return resolve(from_words(words, {}, catalogue), facts)

        return plan_with


def random_case(number: int) -> Case:
    """The case of a number: the same each time."""
    random = Random(number)
    gpu = declare(random.choice(GPUS))
    memory = (gpu.memory_mib or 0) * MIB
    target = random.choice(TARGETS)
    ranks = _ranks(random, target, memory)
    algorithm = random.choice(("EAGLE", "EAGLE3", "EAGLE3", "STANDALONE", "STANDALONE", "NGRAM"))
    draft = _draft(random, algorithm, target)
    version = random.choice(VERSIONS)
    truth = _truth(random, memory, ranks)
    args = _args(random, target, draft, algorithm, ranks, version)
    return Case(number, version, target, draft, _probed(random, gpu, ranks, truth), args, truth)


def _ranks(random: Random, target: Model, memory: int) -> int:
    """As many GPUs as people take; now and then too few."""
    wanted = target.weight_bytes / (0.75 * memory)
    ranks = 1
    while ranks < wanted and ranks < 8:
        ranks *= 2
    if random.random() < 0.12 and ranks > 1:
        ranks //= 2
    elif random.random() < 0.2 and ranks < 8:
        ranks *= 2
    while target.kv_heads % ranks:
        ranks //= 2
    return ranks


def _draft(random: Random, algorithm: str, target: Model) -> Model | None:
    if algorithm == "NGRAM":
        return None
    if algorithm == "STANDALONE":
        same = [one for one in STANDALONE_DRAFTS if one.vocab == target.vocab]
        return random.choice(same or STANDALONE_DRAFTS)
    return one_layer_draft(target, eagle3=algorithm == "EAGLE3")


def _truth(random: Random, memory: int, ranks: int) -> Truth:
    def about(factor: float, spread: float) -> float:
        return factor * math.exp(random.gauss(0, spread))

    others = 0
    if random.random() < 0.25:
        others = int(random.uniform(0.3, 0.1 * memory / GIB) * GIB)
    return Truth(
        context_bytes=int(random.uniform(0.45, 1.5) * GIB),
        link_bytes=0 if ranks == 1 else int(random.uniform(0.2, 2.5) * GIB),
        others_bytes=others,
        weights=1 + abs(random.gauss(0, 0.006)),
        draft=1 + abs(random.gauss(0, 0.05)),
        graph_each=int(random.uniform(0.1, 0.5) * MIB),
        graphs=about(1.2, 0.4),
        activations=about(1.5, 0.4),
        workspace_bytes=int(random.uniform(0.15, 1.4) * GIB),
        fragments=random.uniform(0.0, 0.06),
        request_tokens=random.choice((1024, 2048, 4096, 8192)),
    )


def _probed(random: Random, gpu: Hardware, ranks: int, truth: Truth) -> Hardware:
    """The hardware as speclaunch sees it: other processes are known where it was probed."""
    if random.random() < 0.5:
        return replace(gpu, count=ranks)
    memory = (gpu.memory_mib or 0) * MIB
    taken = truth.others_bytes
    processes = (OtherProcess(4711, "python", taken),) if taken else ()
    found = tuple(
        Gpu(index, gpu.name, memory, memory - taken - 200 * MIB, processes)
        for index in range(ranks)
    )
    return replace(gpu, count=ranks, gpus=found, declared=False)


def _args(
    random: Random,
    target: Model,
    draft: Model | None,
    algorithm: str,
    ranks: int,
    version: str,
) -> dict[str, Any]:
    args: dict[str, Any] = {"model_path": target.name, "speculative_algorithm": algorithm}
    if ranks > 1:
        args["tp_size"] = ranks
    if draft is not None:
        args["speculative_draft_model_path"] = draft.name
        if random.random() < 0.8:
            steps, topk, tokens = random.choice(TREES)
            args |= {
                "speculative_num_steps": steps,
                "speculative_eagle_topk": topk,
                "speculative_num_draft_tokens": tokens,
            }
    if random.random() < 0.75:
        args["mem_fraction_static"] = round(random.uniform(0.35, 0.97), 3)
    if random.random() < 0.4:
        args["cuda_graph_max_bs_decode"] = random.choice((8, 16, 32, 64, 128, 160, 256))
    if random.random() < 0.55:
        args["max_running_requests"] = random.choice((8, 16, 32, 48, 64, 128, 256))
    if random.random() < 0.35:
        args["chunked_prefill_size"] = random.choice((2048, 4096, 8192, 16384))
    if random.random() < 0.3:
        args["context_length"] = random.choice((4096, 8192, 16384))
    return args
