"""The server arguments of its engines that slime says itself: what is written for them is ignored.

slime's parser lacks most of them, and what it lacks is ignored without a word; it overwrites the
others. Sources: slime (THUDM/slime at 0c1e2ca), slime/backends/sglang_utils/arguments.py
(`skipped_args`, `validate_args`) and sglang_engine.py (`_compute_server_args`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Own:
    """What slime does instead, and its own option for it, where it has one."""

    does: str
    option: str | None = None


GPUS, MODEL = "--rollout-num-gpus-per-engine", "--hf-checkpoint"
"""slime's options for the GPUs and the model of an engine."""

OWN = {
    "model_path": Own(f"slime serves {MODEL}", MODEL),
    "tp_size": Own(f"slime derives it from {GPUS}", GPUS),
    "trust_remote_code": Own("slime always sets it"),
    "random_seed": Own("slime gives each engine a seed of its own", "--rollout-seed"),
    "enable_memory_saver": Own("slime sets it when it offloads the rollout", "--offload-rollout"),
    "host": Own("slime binds each engine to its node"),
    "port": Own("slime chooses one for each engine"),
    "nccl_port": Own("slime chooses one for each engine"),
    "nnodes": Own("slime derives it from the GPUs of an engine"),
    "node_rank": Own("slime derives it"),
    "dist_init_addr": Own("slime chooses it"),
    "gpu_id_step": Own("slime sets it to 1"),
    "base_gpu_id": Own("slime derives it from its placement"),
    "skip_server_warmup": Own("slime sets it"),
    "enable_return_routed_experts": Own(
        "--use-rollout-routing-replay sets it", "--use-rollout-routing-replay"
    ),
}
"""By the engine's current names."""
