"""Weights that are larger than the GPU: only where that is certain."""

from __future__ import annotations

from msgspec.structs import replace

from speclaunch.engine.facts.hardware import Gpu, Hardware, OtherProcess, Vendor, declare
from speclaunch.engine.facts.read_checkpoint import from_config
from speclaunch.engine.plan.budget import Fit, MemoryPhase
from speclaunch.engine.plan.memory.budget import budget
from tests.engine.plan.memory.deployments import LLAMA_8B
from tests.support.engine.plan.memory.sized import plan_of
from tests.support.loops import rows

GIB = 1 << 30
QWEN_72B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "torch_dtype": "bfloat16",
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}


@rows(
    "words, hardware, impossible",
    [
        ("", "h100:1", True),
        ("--tp-size 2", "h100:2", False),  # 67.7 of 79.6 GiB
        ("", "b200:1", False),
        ("--quantization fp8", "h100:1", False),
        ("--quantization bitsandbytes", "h100:1", False),
        ("--torchao-config int4wo-128", "h100:1", False),
        ("--cpu-offload-gb 80", "h100:1", False),
        ("--pp-size 2", "h100:2", False),
        ("--device cpu", "h100:1", False),
    ],
)
def test_weights_against_the_gpu(words: str, hardware: str, impossible: bool) -> None:
    target = from_config("qwen", QWEN_72B)
    found = budget(plan_of(target, words, version="0.5.9", hardware=hardware))
    assert found.impossible is impossible
    if impossible:
        assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.TARGET_WEIGHTS)


def test_what_others_hold_may_be_freed() -> None:
    """8B weights fit a GPU of 24 GB, but not beside somebody else's 15 GiB."""
    card = declare("rtx4090")
    memory = (card.memory_mib or 0) << 20
    other = OtherProcess(1, "train", 15 * GIB)
    taken = Gpu(0, "rtx4090", memory, memory - 15 * GIB, (other,))
    occupied = Hardware("rtx4090", Vendor.NVIDIA, 1, card.memory_mib, 89, gpus=(taken,))
    plan = plan_of(from_config("llama", {**LLAMA, "architectures": ["LlamaForCausalLM"]}), "")
    plan = replace(plan, facts=replace(plan.facts, hardware=occupied))
    found = budget(plan)
    assert found.fit is Fit.FAILS and not found.impossible


LLAMA = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": LLAMA_8B.hidden_size,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
