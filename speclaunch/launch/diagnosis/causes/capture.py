"""CUDA graphs: what comes after the colon of `Capture cuda graph failed:` decides.

Every RuntimeError of a capture is wrapped with the same advice about memory
(cuda_graph_runner.py, runner/decode_cuda_graph_runner.py), whatever it was.
"""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from speclaunch.launch.diagnosis.causes.oom import CAPTURE, Stage, during, not_memory
from speclaunch.launch.diagnosis.interface import Cause, Direction
from speclaunch.launch.diagnosis.signature import Known, raised
from speclaunch.plan.topics.graphs import PREFILL_BY_DEFAULT

CAUSES: tuple[Known, ...] = (
    Known(
        Cause(
            name="capture-out-of-memory",
            title="memory ran out while CUDA graphs were captured",
            meaning="Graphs use the memory outside mem_fraction_static: it leaves too little, or "
            "there are too many graphs. With speculation the draft's graphs are captured too.",
            remedy="Lower {mem_fraction_static}.\nOr capture fewer sizes: "
            "{cuda_graph_max_bs_decode}.\nOr serve fewer concurrent requests: "
            "{max_running_requests} limits the sizes too.\nOr draft fewer tokens: "
            "{speculative_num_draft_tokens}.",
            memory=True,
            directions={
                "mem_fraction_static": Direction.LOWER,
                "cuda_graph_max_bs_decode": Direction.LOWER,
                "max_running_requests": Direction.LOWER,
                "speculative_num_draft_tokens": Direction.LOWER,
            },
            sources=(
                "model_executor/cuda_graph_runner.py CUDA_GRAPH_CAPTURE_FAILED_MSG",
                "model_executor/runner_backend_utils/__init__.py",
            ),
        ),
        (raised(r"", during(Stage.CAPTURE)),),
    ),
    Known(
        Cause(
            name="prefill-capture-out-of-memory",
            title="memory ran out while the CUDA graphs of prefill were captured",
            meaning="From 0.5.10 the engine captures prefill graphs too, up to a number of tokens; "
            "they use the memory outside mem_fraction_static.",
            remedy="Disable them: {cuda_graph_backend_prefill=disabled}.\nOr capture fewer sizes: "
            "{cuda_graph_max_bs_prefill}.\nOr lower {mem_fraction_static}.",
            memory=True,
            directions={
                "cuda_graph_max_bs_prefill": Direction.LOWER,
                "mem_fraction_static": Direction.LOWER,
            },
            versions=SpecifierSet(PREFILL_BY_DEFAULT),
            sources=("model_executor/runner/prefill_cuda_graph_runner.py",),
        ),
        (raised(r"", during(Stage.PREFILL_CAPTURE)),),
    ),
    Known(
        Cause(
            name="capture-failed",
            title="CUDA graph capture failed, but not for lack of memory",
            meaning="The engine prints its advice about memory after every failed capture. The "
            "cause here is another one: see the text after the colon.",
            remedy="Leave the memory settings unchanged.\nStart once with {disable_cuda_graph}: "
            "the error then shows its origin.\nTry another {attention_backend}.",
            memory=False,
            sources=("model_executor/runner/decode_cuda_graph_runner.py",),
        ),
        (raised(CAPTURE, not_memory),),
    ),
)
