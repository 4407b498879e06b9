"""Failures of an engine that has begun to answer requests."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from speclaunch.launch.diagnosis.causes.oom import Stage, during
from speclaunch.launch.diagnosis.interface import Cause, Direction
from speclaunch.launch.diagnosis.signature import Known, Level, logged, raised

CAUSES: tuple[Known, ...] = (
    Known(
        Cause(
            name="pool-exhausted",
            title="the KV pool has no room for the running requests",
            meaning="This is the engine's own pool, not the GPU's memory. With speculation each "
            "request needs room for all draft tokens of a step.",
            remedy="Raise {max_total_tokens}, if it is set.\nRaise {mem_fraction_static}.\nOr run "
            "fewer concurrent requests: {max_running_requests}.\nOr draft fewer tokens: "
            "{speculative_num_draft_tokens}.",
            memory=True,
            directions={
                "max_total_tokens": Direction.RAISE,
                "mem_fraction_static": Direction.RAISE,
                "max_running_requests": Direction.LOWER,
                "speculative_num_draft_tokens": Direction.LOWER,
            },
            sources=(
                "managers/schedule_batch.py, mem_cache/common.py, mem_cache/allocation.py",
                "schedule_batch.py retract_decode: the server dies up to 0.5.9",
            ),
        ),
        (
            logged(r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"),
            raised(r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"),
            logged(r"Out of memory\. Try to lower your batch size"),
            raised(r"Out of memory\. Try to lower your batch size"),
            raised(r"Out of memory even after retracting all other requests"),
            raised(r"Failed to retract any request\. No space left"),
        ),
    ),
    Known(
        Cause(
            name="request-slots-exhausted",
            title="the engine ran out of slots for requests",
            meaning="There is one slot per running request; a batch needed more.",
            remedy="Lower {max_running_requests}, as the engine says.",
            memory=True,
            directions={"max_running_requests": Direction.LOWER},
            sources=("mem_cache/allocation.py alloc_req_slots",),
        ),
        (raised(r"alloc_req_slots runs out of memory"),),
    ),
    Known(
        Cause(
            name="state-cache-exhausted",
            title="the state cache of a hybrid model has no room left",
            meaning="Each request and each cached prefix takes a slot of the state cache.",
            remedy="Raise {mamba_full_memory_ratio} or {max_mamba_cache_size}.\nOr run fewer "
            "concurrent requests: {max_running_requests}.",
            memory=True,
            directions={
                "mamba_full_memory_ratio": Direction.RAISE,
                "max_mamba_cache_size": Direction.RAISE,
                "max_running_requests": Direction.LOWER,
            },
            sources=("mem_cache/memory_pool.py HybridReqToTokenPool.alloc",),
        ),
        (raised(r"Not enough space for mamba (?:cache|ping pong idx)"),),
    ),
    Known(
        Cause(
            name="forward-out-of-memory",
            title="memory ran out while a batch was computed",
            meaning="Activations use the memory outside mem_fraction_static; long prompts and "
            "large batches need more than it leaves.",
            remedy="Lower {mem_fraction_static}.\nOr prefill in smaller chunks: "
            "{chunked_prefill_size}.\nOr run fewer concurrent requests: "
            "{max_running_requests}.",
            memory=True,
            directions={
                "mem_fraction_static": Direction.LOWER,
                "chunked_prefill_size": Direction.LOWER,
                "max_running_requests": Direction.LOWER,
            },
            sources=("torch's wording, after `max_total_num_tokens=`",),
        ),
        (raised(r"", during(Stage.FORWARD)),),
    ),
    Known(
        Cause(
            name="out-of-memory",
            title="memory ran out, but the log does not show in which phase",
            meaning="The beginning of the log is missing. The same text calls for a lower "
            "mem_fraction_static during capture or a forward pass, but not while weights are "
            "loaded.",
            remedy="Diagnose the whole log, from the start of the engine.",
            memory=False,
            sources=("torch's wording",),
        ),
        (raised(r"", during(Stage.UNKNOWN)),),
    ),
    Known(
        Cause(
            name="pool-leak",
            title="the engine lost count of its KV pool",
            meaning="Its check while idle found slots that belong to no request: a bug in the "
            "engine (or a plug-in), not in the settings.",
            remedy="Use a newer release, and report it with the log.\n"
            "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE=0 makes it a warning (0.5.4 and later).",
            memory=False,
            sources=("managers/scheduler_components/invariant_checker.py",),
        ),
        (
            raised(r"[\w ]{1,80} memory leak detected!"),
            raised(r"Session-aware token memory leak"),
        ),
    ),
    Known(
        Cause(
            name="engine-hung",
            title="the engine made no progress, and its watchdog stopped it",
            meaning="A batch took longer than the watchdog waits: a deadlock between ranks, a "
            "kernel that does not return, or a very slow step.",
            remedy="For slow steps (first compilation, huge prompts) raise {watchdog_timeout}.\n"
            "Otherwise check the stack traces that the engine printed before it.",
            memory=False,
            sources=("utils/watchdog.py", "managers/scheduler.py watchdog_thread up to 0.5.6"),
        ),
        (
            logged(r"Watchdog timeout \(", level=Level.CAUSE),
            logged(r"[\w ]{1,60} watchdog timeout \((?!.*soft=True)", level=Level.CAUSE),
        ),
    ),
    Known(
        Cause(
            name="health-lost",
            title="the engine stopped answering its own health check",
            meaning="A test request got no answer for 20 s. The engine may recover under load; "
            "this log does not show that it did.",
            remedy="If it repeats, check for a hang: the last batch line, the GPUs' load.",
            memory=False,
            sources=("entrypoints/http_server.py health_generate",),
        ),
        (logged(r"Health check failed\. Server couldn't get a response", level=Level.AFTERMATH),),
    ),
    Known(
        Cause(
            name="dispatch-buffer-too-small",
            title="DeepEP's buffer is smaller than a speculative batch",
            meaning="A rank dispatches its requests times their draft tokens at once.",
            remedy="Set SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK to at least the largest "
            "graph size times {speculative_num_draft_tokens}.\n"
            "Or capture smaller sizes: {cuda_graph_max_bs_decode}.",
            memory=False,
            sources=("DeepEP buffer.low_latency_dispatch",),
        ),
        (
            raised(r".{0,200}num_max_dispatch_tokens_per_rank"),
            raised(
                r"Failed: Assertion error \S{1,120}deep_ep\S{1,120}:\d{1,6} '.{0,80}"
                r"num_max_dispatch"
            ),
        ),
    ),
    Known(
        Cause(
            name="nan-in-logits",
            title="the model computed NaN",
            meaning="float16 overflowed, or the quantisation is broken. The engine was told to "
            "stop at NaN.",
            remedy="Set {dtype} to bfloat16; check the quantised checkpoint.",
            memory=False,
            versions=SpecifierSet("<0.5.13"),
            sources=("layers/sampler.py",),
        ),
        (raised(r"Detected errors during sampling! NaN in the logits"),),
    ),
)
