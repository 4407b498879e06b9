"""Plans of a few words, on machines and checkpoints that are made up here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import Gpu, Hardware, Vendor
from speclaunch.engine.plan.plan import ChangeKind, Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load

H100 = Hardware("h100", Vendor.NVIDIA, 8, 81559, 90)
B200 = Hardware("b200", Vendor.NVIDIA, 8, 183359, 100)
A100 = Hardware("a100", Vendor.NVIDIA, 8, 81920, 80)
MI300X = Hardware("mi300x", Vendor.AMD, 8, 196288)
CPU = Hardware("cpu", Vendor.CPU, 1, gpus=(Gpu(0, "memory", 64 << 30),), declared=False)


def model(architecture: str = "LlamaForCausalLM", **config: Any) -> Checkpoint:
    """A checkpoint with so much of a config."""
    known = ("dtype", "model_type", "context_length", "context_lengths", "kv_lora_rank")
    fields = {name: config.pop(name) for name in known if name in config}
    config = {"architectures": [architecture], **config}
    return Checkpoint("model", architectures=(architecture,), config=config, **fields)


LLAMA = model(dtype="bfloat16", model_type="llama", context_length=131072)
DEEPSEEK = model("DeepseekV3ForCausalLM", kv_lora_rank=512, context_length=163840)


def plan(
    version: str,
    words: str = "",
    *,
    target: Checkpoint | None = LLAMA,
    draft: Checkpoint | None = None,
    hardware: Hardware | None = H100,
    env: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a command line, for one release."""
    request = from_words(["--model-path", "m", *words.split()], env or {}, load(version))
    assert not request.problems, [problem.message for problem in request.problems]
    return resolve(request, Facts(target, draft, hardware))


def changes(found: Plan) -> dict[str, ChangeKind]:
    """What the engine changes by itself: the kind of each field's change."""
    return {change.name: change.kind for change in found.changes}
