"""Server arguments that slime sets itself for its engines, ignoring explicit values.

slime's parser lacks most of them and silently ignores unknown options. It overwrites the others.
Sources: slime (THUDM/slime at 0c1e2ca), slime/backends/sglang_utils/arguments.py (`skipped_args`,
`validate_args`) and sglang_engine.py (`_compute_server_args`).
"""

from __future__ import annotations

from msgspec import Struct

from speclaunch.engine import canonical, distance, history


class SlimeReplacement(Struct, frozen=True):
    """Value that slime sets instead, and slime's own option for it, if any."""

    does: str
    option: str | None = None


GPUS, MODEL = "--rollout-num-gpus-per-engine", "--hf-checkpoint"
"""slime's options for the GPUs and the model of an engine."""

OWN = {
    "model_path": SlimeReplacement(f"slime serves {MODEL}", MODEL),
    "tp_size": SlimeReplacement(f"slime derives it from {GPUS}", GPUS),
    "trust_remote_code": SlimeReplacement("slime always sets it"),
    "random_seed": SlimeReplacement(
        "slime sets a different seed for each engine", "--rollout-seed"
    ),
    "enable_memory_saver": SlimeReplacement(
        "slime sets it to offload the rollout", "--offload-rollout"
    ),
    "host": SlimeReplacement("slime binds each engine to its node"),
    "port": SlimeReplacement("slime chooses one for each engine"),
    "nccl_port": SlimeReplacement("slime chooses one for each engine"),
    "nnodes": SlimeReplacement("slime derives it from the GPUs of an engine"),
    "node_rank": SlimeReplacement("slime derives it"),
    "dist_init_addr": SlimeReplacement("slime chooses it"),
    "gpu_id_step": SlimeReplacement("slime sets it to 1"),
    "base_gpu_id": SlimeReplacement("slime derives it from its placement"),
    "skip_server_warmup": SlimeReplacement("slime sets it"),
    "enable_return_routed_experts": SlimeReplacement(
        "--use-rollout-routing-replay sets it", "--use-rollout-routing-replay"
    ),
}
"""Replacements by the engine's current argument name."""

_SHARED = frozenset(
    [
        "--attention-backend",
        "--chat-template",
        "--config",
        "--context-length",
        "--data-parallel-size",
        "--device",
        "--disaggregation-bootstrap-port",
        "--dp-size",
        "--dtype",
        "--encoder-urls",
        "--ep",
        "--ep-size",
        "--load-format",
        "--log-level",
        "--max-lora-rank",
        "--model",
        "--moe-dp-size",
        "--page-size",
        "--pp-size",
        "--quantization",
        "--reasoning-parser",
        "--sampling-backend",
        "--sampling-defaults",
        "--tokenizer-mode",
        "--tokenizer-path",
        "--weight-version",
    ]
)
"""SGLang flags that the trainer also has or may have, as complete names or prefixes.

Megatron-LM creates options from the fields of its configurations (megatron/training/config,
megatron/core, at d98e8a6); slime at 624b824.
"""

_NAMED = (
    "--sglang-router-ip",
    "--sglang-router-port",
    "--sglang-router-policy",
    "--sglang-router-request-timeout-secs",
    "--sglang-router-balance-abs-threshold",
    "--sglang-router-balance-rel-threshold",
    "--sglang-server-concurrency",
    "--actor-num-gpus-per-node",
    "--actor-num-nodes",
    "--debug-rollout-only",
    "--hf-checkpoint",
    "--prefill-num-servers",
    "--rollout-max-context-len",
    "--rollout-max-prompt-len",
    "--rollout-max-response-len",
    "--rollout-num-gpus",
    "--rollout-num-gpus-per-engine",
    "--rollout-num-gpus-per-node",
    "--rollout-seed",
    "--use-rollout-routing-replay",
)
"""slime's and miles' own options that state how engines are run, with their full names.

slime at 624b824 and miles at 31f1ca9, backends/sglang_utils/arguments.py and utils/arguments.py.
The thresholds are sglang_router's (RouterArgs), with the names in published scripts. The list is
not complete.
"""
_LONG = 20
"""Minimum length of a name that may contain two typos; a shorter name may contain one."""


def misspelt(flag: str) -> str | None:
    """Return the option that an unknown flag misspells.

    A prefix of an option is not a typo, because argparse accepts it.
    """
    if any(name.startswith(flag) for name in _NAMED):
        return None
    slips = 2 if len(flag) >= _LONG else 1
    near = [(distance(flag, name), name) for name in _NAMED if abs(len(name) - len(flag)) <= slips]
    found = min(near, default=(slips + 1, ""))
    return found[1] if found[0] <= slips else None


def option_for(flag: str) -> str | None:
    """Return slime's own option for an engine flag."""
    own = OWN.get(canonical(flag.removeprefix("--").replace("-", "_")))
    return own.option if own is not None else None


def is_lost(flag: str) -> bool:
    """True if a flag among slime's options can only be meant for the engine, which never gets it.

    A release of SGLang has the flag. slime, Megatron-LM and torchrun (which names nodes and ports
    like the engine) lack it.
    """
    if not flag.startswith("--") or "_" in flag or flag in _SHARED or history(flag) is None:
        return False
    name = canonical(flag.removeprefix("--").replace("-", "_"))
    return name == "tp_size" or name not in OWN
