"""GPUs that are taken, and weights that do not fit."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from speclaunch.launch.diagnosis.causes.oom import Stage, during
from speclaunch.launch.diagnosis.interface import Cause, Direction
from speclaunch.launch.diagnosis.signature import Known, LogFailure, raised
from speclaunch.plan.topics.memory import FIRST_IN_POOL


def _on_cpu(failure: LogFailure) -> bool:
    return failure.cpu and during(Stage.WEIGHTS)(failure)


CAUSES: tuple[Known, ...] = (
    Known(
        Cause(
            name="gpus-unbalanced",
            title="one GPU has less free memory than the others",
            meaning="One rank has less than nine tenths of the free memory of the others: another "
            "process holds memory on its GPU.",
            remedy="Stop the other process, or exclude that GPU with CUDA_VISIBLE_DEVICES.\nIf the "
            "imbalance is intended: SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 (0.5.7 and "
            "later).",
            memory=False,
            sources=("distributed/bootstrap.py", "model_executor/model_runner.py up to 0.5.20"),
        ),
        (raised(r"The memory capacity is unbalanced\. Some GPUs may be occupied"),),
    ),
    Known(
        Cause(
            name="gpu-taken",
            title="the GPU had no memory left before anything was loaded",
            meaning="Other processes hold it: the engine cannot even start.",
            remedy="Stop them (`nvidia-smi` lists them), or choose another GPU with "
            "CUDA_VISIBLE_DEVICES.",
            memory=False,
            sources=("torch's wording, before `Load weight begin`",),
        ),
        (raised(r"", during(Stage.DEVICE)),),
    ),
    Known(
        Cause(
            name="weights-exceed-machine",
            title="the weights do not fit the machine's memory",
            meaning="On a CPU the weights lie in the machine's memory, which other "
            "processes share.",
            remedy="Give the machine or the container more memory.\nOr use a smaller model, a "
            "smaller draft, or a quantised checkpoint.",
            memory=False,
            sources=("torch's wording, after `Load weight begin`, device=cpu",),
        ),
        (raised(r"", _on_cpu),),
    ),
    Known(
        Cause(
            name="weights-do-not-fit",
            title="the weights do not fit the GPU",
            meaning="Memory ran out while weights were loaded, before the pool: "
            "mem_fraction_static does not matter yet, and no value of it helps. From "
            f"{FIRST_IN_POOL} the same holds for the draft's weights, which are loaded before the "
            "pool.",
            remedy="Spread the model over more GPUs: {tp_size}.\nOr load it in fewer bits: "
            "{quantization}, or a quantised checkpoint.\nOr use a smaller draft, or a "
            "smaller model.\nCheck for other processes on the GPU first: `nvidia-smi`.",
            memory=False,
            sources=("torch's wording, after `Load weight begin`",),
        ),
        (raised(r"", during(Stage.WEIGHTS)),),
    ),
    Known(
        Cause(
            name="draft-weights-do-not-fit",
            title="the memory outside the pool is too small for the draft",
            meaning="Up to 0.5.13 the target's KV pool is allocated first, and the draft's weights "
            "and KV cache use what mem_fraction_static leaves.",
            remedy="Lower {mem_fraction_static}.\n"
            f"Or use {FIRST_IN_POOL} or later, which counts the draft into the fraction.",
            memory=True,
            directions={"mem_fraction_static": Direction.LOWER},
            versions=SpecifierSet(f"<{FIRST_IN_POOL}"),
            sources=("speculative/eagle_worker.py up to 0.5.13: the second `Load weight begin`",),
        ),
        (raised(r"", during(Stage.DRAFT_IN_SLACK)),),
    ),
)
