"""How long a start may take: more than any start that was measured, and made of what is known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.plan.startup import (
    SLOW_BYTES_PER_SECOND,
    StartPart,
    start_time,
    weight_files,
)
from speclaunch.engine.releases.catalogue import load as load_catalogue

GB = 10**9


def planned(*words: str, facts: Facts, version: str = "0.5.23") -> Plan:
    given = ("--model-path", "m", *words)
    return resolve(from_words(given, {}, load_catalogue(version)), facts)


def checkpoint(size: int | None, name: str = "m", **more: object) -> Checkpoint:
    known = {
        "architectures": ("LlamaForCausalLM",),
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        **more,
    }
    return Checkpoint(name, weight_bytes=size, **known)  # type: ignore[arg-type]


def facts(size: int | None = 140 * GB, hardware: str | None = "h100", **more: object) -> Facts:
    return Facts(target=checkpoint(size, **more), hardware=declare(hardware) if hardware else None)


def seconds(plan: Plan, part: StartPart) -> int:
    return sum(one.seconds for one in start_time(plan).parts if one.part is part)


def test_weights_come_from_a_slow_disk() -> None:
    plan = planned(facts=facts())
    assert seconds(plan, StartPart.WEIGHTS) == 140 * GB // SLOW_BYTES_PER_SECOND
    assert "140.0 GB at 200 MB/s" in start_time(plan).why
    assert start_time(plan).seconds == sum(one.seconds for one in start_time(plan).parts)


def test_a_draft_of_its_own_is_loaded_too() -> None:
    own = facts()
    both = replace(own, draft=checkpoint(2 * GB, "d"))
    words = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path")
    assert weight_files(planned(*words, "d", facts=both)) == 142 * GB
    assert weight_files(planned(*words, "m", facts=both)) == 140 * GB
    with pytest.raises(UnknownValueError, match="weights of d"):
        weight_files(planned(*words, "d", facts=own))


def test_a_checkpoint_of_unknown_size_says_so() -> None:
    with pytest.raises(UnknownValueError, match="weights of m"):
        start_time(planned(facts=Facts(hardware=declare("h100"))))


def test_speculation_captures_graphs_of_two_models() -> None:
    words = ("--cuda-graph-max-bs-decode", "8")
    plain = seconds(planned(*words, facts=facts()), StartPart.GRAPHS)
    ngram = planned(*words, "--speculative-algorithm", "NGRAM", facts=facts())
    assert seconds(ngram, StartPart.GRAPHS) > plain > 0
    off = planned("--disable-cuda-graph", facts=facts())
    assert seconds(off, StartPart.GRAPHS) == 0


def test_unknown_hardware_captures_as_many_graphs_as_there_may_be() -> None:
    unknown = seconds(planned(facts=facts(hardware=None)), StartPart.GRAPHS)
    assert unknown >= seconds(planned(facts=facts()), StartPart.GRAPHS)


def test_kernels_that_are_compiled_take_time() -> None:
    plain = seconds(planned(facts=facts()), StartPart.KERNELS)
    compiled = planned("--enable-torch-compile", facts=facts())
    assert seconds(compiled, StartPart.KERNELS) - plain == 900
    fp8 = facts(quantization="fp8", quantization_config={"weight_block_size": [128, 128]})
    assert seconds(planned(facts=fp8), StartPart.KERNELS) - plain == 1200


def test_a_cpu_has_no_graphs() -> None:
    plan = planned("--device", "cpu", facts=facts(size=GB // 1000, hardware="cpu"))
    assert seconds(plan, StartPart.GRAPHS) == 0
    assert 60 < start_time(plan).seconds < 600  # the CPU engine starts in 11 to 24 s


def test_the_largest_published_start_is_within() -> None:
    """DeepSeek-R1: 689 GB; half an hour is what people report from network disks."""
    r1 = facts(
        size=689 * GB, quantization="fp8", quantization_config={"weight_block_size": [128, 128]}
    )
    assert 2 * 1800 < start_time(planned("--tp-size", "8", facts=r1)).seconds < 3 * 3600
