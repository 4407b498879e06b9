"""CUDA graphs: what comes after the colon of `Capture cuda graph failed:` decides.

Every RuntimeError of a capture is wrapped with the same advice about memory
(cuda_graph_runner.py, runner/decode_cuda_graph_runner.py), whatever it was.
"""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from speclaunch.launch.diagnosis.causes.oom import CAPTURE, Stage, during, not_memory
from speclaunch.launch.diagnosis.interface import Cause, Direction
from speclaunch.launch.diagnosis.signature import Known, raised

CAUSES: tuple[Known, ...] = (
    Known(
        Cause(
            name="capture-out-of-memory",
            title="memory ran out while CUDA graphs were captured",
            meaning="Graphs lie beside the memory fraction: it leaves too little, or there are too "
            "many of them. With speculation the draft's are captured too.",
            remedy="Lower {mem_fraction_static}.\n"
            "Or capture fewer sizes: {cuda_graph_max_bs_decode}.\n"
            "Or serve fewer requests at a time: {max_running_requests} limits the sizes too.\n"
            "Or draft fewer tokens: {speculative_num_draft_tokens}.",
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
            meaning="From 0.5.10 the engine captures graphs for prefill as well, up to a number of "
            "tokens; they lie beside the memory fraction.",
            remedy="Switch them off: {cuda_graph_backend_prefill=disabled}.\n"
            "Or capture fewer sizes: {cuda_graph_max_bs_prefill}.\n"
            "Or lower {mem_fraction_static}.",
            memory=True,
            directions={
                "cuda_graph_max_bs_prefill": Direction.LOWER,
                "mem_fraction_static": Direction.LOWER,
            },
            versions=SpecifierSet(">=0.5.10"),
            sources=("model_executor/runner/prefill_cuda_graph_runner.py",),
        ),
        (raised(r"", during(Stage.PREFILL_CAPTURE)),),
    ),
    Known(
        Cause(
            name="capture-failed",
            title="the capture of CUDA graphs failed, and not for lack of memory",
            meaning="The engine's advice about memory stands under every failed capture. Here "
            "something else went wrong: the text after the colon says what.",
            remedy="Do not touch the memory settings.\n"
            "Start once with {disable_cuda_graph}: the error then shows where it comes from.\n"
            "Try another {attention_backend}.",
            memory=False,
            sources=("model_executor/runner/decode_cuda_graph_runner.py",),
        ),
        (raised(CAPTURE, not_memory),),
    ),
)
