"""slime's rollout arguments.

slime gives the SGLang engines of its rollouts every server argument that is written with the prefix
`--sglang-`, but for those that it sets itself. Sources: slime (THUDM/slime at 0c1e2ca),
slime/backends/sglang_utils/arguments.py (`skipped_args`) and sglang_engine.py
(`_compute_server_args`).
"""

from __future__ import annotations

from speclaunch.deploy.interface import Renderer, Rendering
from speclaunch.engine.command import SpelledArgument
from speclaunch.importer.slime import prefixed
from speclaunch.report.shell import argument_words, exports

SET_BY_SLIME = {
    "model_path": "slime serves --hf-checkpoint",
    "trust_remote_code": "slime always sets it",
    "random_seed": "slime gives each engine a seed of its own",
    "enable_memory_saver": "slime sets it when it offloads the rollout",
    "host": "slime binds each engine to its node",
    "port": "slime chooses one for each engine",
    "nccl_port": "slime chooses one for each engine",
    "nnodes": "slime derives it from the GPUs of an engine",
    "node_rank": "slime derives it",
    "dist_init_addr": "slime chooses it",
    "gpu_id_step": "slime sets it to 1",
    "base_gpu_id": "slime derives it from its placement",
    "skip_server_warmup": "slime sets it",
}
"""Server arguments that slime does not take, and what it does instead."""

_PARALLEL = ("tp_size", "pp_size")
"""slime's tp_size is --rollout-num-gpus-per-engine divided by pp_size."""


class SlimeRenderer(Renderer):
    """A `SGLANG_ARGS=( … )` array, as slime's scripts have it."""

    target = "slime"

    def render(self, deployment: Rendering) -> str:
        """The array, with the environment before it and what was left out as comments."""
        arguments = deployment.spelling.arguments
        sizes = {a.name: int(a.values[0]) for a in arguments if a.name in _PARALLEL}
        gpus = sizes.get("tp_size", 1) * sizes.get("pp_size", 1)
        lines = [f"# {deployment.title}", *(f"# {note}" for note in deployment.spelling.notes)]
        lines += [
            f"# left out: {argument.flag} ({SET_BY_SLIME[argument.name]})"
            for argument in arguments
            if argument.name in SET_BY_SLIME
        ]
        body = ["SGLANG_ARGS=(", f"   --rollout-num-gpus-per-engine {gpus}"]
        body += [f"   {_prefixed(argument)}" for argument in arguments if _taken(argument)]
        body += [")"]
        tail = [
            "# Add ${SGLANG_ARGS[@]} to slime's train.py. If rollouts fail, --debug-rollout-only,",
            "# an option of slime's own, runs them without training and offloading.",
        ]
        environment = exports(deployment.env)
        middle = [environment.rstrip()] if environment else []
        return "\n".join([*lines, *middle, *body, *tail]) + "\n"


def _taken(argument: SpelledArgument) -> bool:
    return argument.name not in SET_BY_SLIME and argument.name != "tp_size"


def _prefixed(argument: SpelledArgument) -> str:
    return argument_words(argument, prefixed(argument.flag))
