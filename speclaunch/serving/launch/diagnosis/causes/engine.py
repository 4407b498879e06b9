"""Causes in the engine: rejected arguments, and failures while it serves."""

from __future__ import annotations

import re

from speclaunch.checks import rule_of
from speclaunch.engine import FIRST_WITH
from speclaunch.serving.launch.diagnosis.causes.memory import StartStage, during
from speclaunch.serving.launch.diagnosis.interface import (
    Direction,
    FailureLevel,
    KnownCause,
    known,
    logged,
    lower,
    printed,
    raised,
)

_PROGRAM = r"(?:usage: )?[\w./ -]{1,200}: error: "
_SPECULATIVE = re.compile(
    r"speculative_(?:num_steps|eagle_topk|num_draft_tokens)\b.* is (?:not )?None"
)


REFUSED = "arguments-refused"
"""Name of the cause for refused arguments; a rule may explain the details."""


def _since(algorithms: tuple[str, ...]) -> str:
    return ", ".join(f"{name} from {FIRST_WITH[name]}" for name in algorithms)


ARGUMENTS: tuple[KnownCause, ...] = (
    known(
        name="speculative-algorithm-unknown",
        title="this engine has no speculative algorithm of that name",
        meaning="The engine accepts only the names that this release knows.",
        remedy="Correct {speculative_algorithm}, or use a release that has the algorithm: "
        f"{_since(('STANDALONE', 'NGRAM', 'DFLASH', 'DSPARK'))}.",
        sources=("speculative/spec_info.py from_string", "argparse choices up to 0.5.11"),
        signatures=(
            raised(r"Unknown speculative algorithm name: ", rule="SPL101"),
            printed(_PROGRAM + r"argument --speculative-algorithm: invalid choice", rule="SPL101"),
        ),
    ),
    known(
        name="argument-unknown",
        title="the engine has no such argument",
        meaning="The argument does not exist in this release, or not under that name.",
        remedy="Use the argument's name in this release: `speclaunch lint` shows it, "
        "`speclaunch migrate` rewrites the command.",
        sources=("argparse",),
        signatures=(printed(_PROGRAM + r"unrecognized arguments: ", rule="SPL001"),),
    ),
    known(
        name="argument-ambiguous",
        title="an abbreviated argument is ambiguous",
        meaning="Several arguments of this release start with these letters. The usual case is "
        "`--cuda-graph-max-bs`, which 0.5.20 split in two.",
        remedy="Write the argument in full; `speclaunch migrate` does so.",
        sources=("argparse",),
        signatures=(printed(_PROGRAM + r"ambiguous option: ", rule="SPL002"),),
    ),
    known(
        name="model-not-named",
        title="the command names no model",
        meaning="The engine cannot start without a model.",
        remedy="Set {model_path}.",
        sources=("argparse",),
        signatures=(printed(_PROGRAM + r"the following arguments are required: ", rule="SPL004"),),
    ),
    known(
        name="argument-value-refused",
        title="an argument has a value that this engine does not accept",
        meaning="The value has the wrong type, or is not among the choices of this release.",
        remedy="Use one of the values that the line names; `speclaunch lint` checks them for "
        "every release.",
        sources=("argparse",),
        signatures=(printed(_PROGRAM + r"argument [^:]{1,200}: ", rule="SPL003"),),
    ),
    known(
        name="speculative-parameters-incomplete",
        title="only some of the three speculation parameters are set",
        meaning="The engine needs steps, topk and draft tokens together, or none of them. It "
        "fails on an assertion without a message, or on a computation with the missing value.",
        remedy="Set {speculative_num_steps}, {speculative_eagle_topk} and "
        "{speculative_num_draft_tokens} together.\nOr omit all three: the engine chooses "
        "them.",
        sources=(
            "arg_groups/speculative_hook.py _handle_eagle_family",
            "server_args.py _handle_speculative_decoding up to 0.5.13",
        ),
        signatures=(
            raised(
                r"'[<>]=?' not supported between instances of 'NoneType' and 'int'",
                lambda failure: failure.at_arguments,
                rule="SPL103",
            ),
            # a bare assertion on the three parameters (speculative_hook.py, server_args.py)
            raised(
                r"$", lambda f: f.at_arguments and bool(_SPECULATIVE.search(f.code)), rule="SPL102"
            ),
        ),
    ),
    known(
        name="package-version",
        title="a package of the engine is missing or too old",
        meaning="The engine checks the kernel packages it was built for before it starts.",
        remedy="Install the version that the line names into the engine's environment; "
        "`speclaunch doctor` shows all of them.",
        sources=("utils/common.py assert_pkg_version",),
        signatures=(
            raised(r"\S{1,100} is installed with version \S{1,60}, which is less than the minimum"),
            raised(r"\S{1,100} with minimum required version \S{1,60} is not installed\."),
        ),
    ),
    known(
        name="engine-not-installed",
        title="SGLang is not installed in this environment",
        meaning="The interpreter that was started has no SGLang.",
        remedy="Set `engine.python` to the interpreter that has it, or install SGLang there.",
        sources=("Python",),
        signatures=(
            raised(r"No module named 'sglang(?:\.\w{1,60})*'"),
            printed(
                r"\S{1,200}: (?:Error while finding module specification for 'sglang\.|"
                r"No module named sglang\b)"
            ),
        ),
    ),
    known(
        name="package-missing",
        title="a Python package that this start needs is not installed",
        meaning="The engine imports it only for this model, backend or feature.",
        remedy="Install the package that the line names into the engine's environment, or "
        "choose another backend.",
        sources=("Python",),
        signatures=(
            raised(r"No module named '", level=FailureLevel.CAUSE),
            raised(r"cannot import name '\w{1,100}' from '", level=FailureLevel.CAUSE),
            raised(r"Please install "),
        ),
    ),
    known(
        name=REFUSED,
        title="the engine refuses this combination of arguments",
        meaning="The engine validated its arguments and found a combination that this release "
        "does not support; the line names it.",
        remedy="Change the arguments that the line names; `speclaunch lint` finds such "
        "combinations before the start and suggests a fix.",
        sources=("server_args.py, arg_groups/ of all releases",),
        signatures=(
            raised(r"", lambda failure: rule_of(failure.message) is not None),
            raised(r"", lambda failure: failure.at_arguments),
        ),
    ),
    known(
        name="server-arguments-port",
        title="the ports derived from --port are taken",
        meaning=(
            "With DP attention the engine uses the ports after its own; one of them is in use."
        ),
        remedy="Choose another {port}, or stop the process that uses the occupied port.",
        versions=">=0.5.5",
        sources=("server_args.py PortArgs.init_new",),
        signatures=(logged(r"Port is already in use\. dist_init_port="),),
    ),
)


SERVING: tuple[KnownCause, ...] = (
    known(
        name="pool-exhausted",
        title="the KV pool has no room for the running requests",
        meaning="This is the engine's own pool, not the GPU's memory. With speculation each "
        "request needs room for all draft tokens of a step.",
        remedy="Raise {max_total_tokens}, if it is set.\nRaise {mem_fraction_static}.\nOr run "
        "fewer concurrent requests: {max_running_requests}.\nOr draft fewer tokens: "
        "{speculative_num_draft_tokens}.",
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
        signatures=(
            logged(r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"),
            raised(r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"),
            logged(r"Out of memory\. Try to lower your batch size"),
            raised(r"Out of memory\. Try to lower your batch size"),
            raised(r"Out of memory even after retracting all other requests"),
            raised(r"Failed to retract any request\. No space left"),
        ),
    ),
    known(
        name="request-slots-exhausted",
        title="the engine ran out of slots for requests",
        meaning="There is one slot per running request; a batch needed more.",
        remedy="Lower {max_running_requests}, as the engine's message advises.",
        directions=lower("max_running_requests"),
        sources=("mem_cache/allocation.py alloc_req_slots",),
        signatures=(raised(r"alloc_req_slots runs out of memory"),),
    ),
    known(
        name="state-cache-exhausted",
        title="the state cache of a hybrid model has no room left",
        meaning="Each request and each cached prefix takes a slot of the state cache.",
        remedy="Raise {mamba_full_memory_ratio} or {max_mamba_cache_size}.\nOr run fewer "
        "concurrent requests: {max_running_requests}.",
        directions={
            "mamba_full_memory_ratio": Direction.RAISE,
            "max_mamba_cache_size": Direction.RAISE,
            "max_running_requests": Direction.LOWER,
        },
        sources=("mem_cache/memory_pool.py HybridReqToTokenPool.alloc",),
        signatures=(raised(r"Not enough space for mamba (?:cache|ping pong idx)"),),
    ),
    known(
        name="forward-out-of-memory",
        title="memory ran out while a batch was computed",
        meaning="Activations use the memory outside mem_fraction_static; long prompts and "
        "large batches need more than it leaves.",
        remedy="Lower {mem_fraction_static}.\nOr prefill in smaller chunks: "
        "{chunked_prefill_size}.\nOr run fewer concurrent requests: "
        "{max_running_requests}.",
        directions=lower("mem_fraction_static", "chunked_prefill_size", "max_running_requests"),
        sources=("torch's wording, after `max_total_num_tokens=`",),
        signatures=(raised(r"", during(StartStage.FORWARD)),),
    ),
    known(
        name="out-of-memory",
        title="memory ran out, but the log does not show in which phase",
        meaning="The beginning of the log is missing. The same message calls for a lower "
        "mem_fraction_static during capture or a forward pass, but not while weights are "
        "loaded.",
        remedy="Diagnose the complete log, from the start of the engine.",
        sources=("torch's wording",),
        signatures=(raised(r"", during(StartStage.UNKNOWN)),),
    ),
    known(
        name="pool-leak",
        title="the engine lost count of its KV pool",
        meaning="Its idle check found slots that belong to no request: a bug in the "
        "engine (or a plug-in), not in the settings.",
        remedy="Use a newer release, and report the leak with the log.\n"
        "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE=0 makes it a warning (0.5.4 and later).",
        sources=("managers/scheduler_components/invariant_checker.py",),
        signatures=(
            raised(r"[\w ]{1,80} memory leak detected!"),
            raised(r"Session-aware token memory leak"),
        ),
    ),
    known(
        name="engine-hung",
        title="the engine made no progress, and its watchdog stopped it",
        meaning="A batch took longer than the watchdog allows: a deadlock between ranks, a "
        "kernel that does not return, or a very slow step.",
        remedy="For slow steps (first compilation, huge prompts) raise {watchdog_timeout}.\n"
        "Otherwise check the stack traces that the engine printed before.",
        sources=("utils/watchdog.py", "managers/scheduler.py watchdog_thread up to 0.5.6"),
        signatures=(
            logged(r"Watchdog timeout \(", level=FailureLevel.CAUSE),
            logged(r"[\w ]{1,60} watchdog timeout \((?!.*soft=True)", level=FailureLevel.CAUSE),
        ),
    ),
    known(
        name="health-lost",
        title="the engine stopped answering its own health check",
        meaning="A test request got no answer for 20 s. An engine under load may recover; "
        "this log does not show that it did.",
        remedy="If this repeats, check for a hang: the last batch line, the GPUs' load.",
        sources=("entrypoints/http_server.py health_generate",),
        signatures=(
            logged(
                r"Health check failed\. Server couldn't get a response",
                level=FailureLevel.AFTERMATH,
            ),
        ),
    ),
    known(
        name="dispatch-buffer-too-small",
        title="DeepEP's buffer is smaller than a speculative batch",
        meaning="A rank dispatches its requests times their draft tokens at once.",
        remedy="Set SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK to at least the largest "
        "graph size times {speculative_num_draft_tokens}.\n"
        "Or capture smaller sizes: {cuda_graph_max_bs_decode}.",
        sources=("DeepEP buffer.low_latency_dispatch",),
        signatures=(
            raised(r".{0,200}num_max_dispatch_tokens_per_rank"),
            raised(
                r"Failed: Assertion error \S{1,120}deep_ep\S{1,120}:\d{1,6} '.{0,80}"
                r"num_max_dispatch"
            ),
        ),
    ),
    known(
        name="nan-in-logits",
        title="the model computed NaN",
        meaning="float16 overflowed, or the quantization is broken. The engine is set to "
        "stop at NaN.",
        remedy="Set {dtype} to bfloat16; check the quantized checkpoint.",
        versions="<0.5.13",
        sources=("layers/sampler.py",),
        signatures=(raised(r"Detected errors during sampling! NaN in the logits"),),
    ),
)
