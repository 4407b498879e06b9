"""Write the composed part of the corpus of failing logs: tests/serving/launch/diagnosis/corpus/.

    python tools/failure_texts.py

Each log is put together by tests/support/serving/launch/failure_log.py. The label of each, what it
died of, says what the source means by the text; it is written here by hand, and nothing of the
diagnosis is used. Logs that a real engine or a published issue printed stay as they are, with their
labels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.serving.launch.failure_log import (  # noqa: E402
    ADVICE_NEW,
    ADVICE_OLD,
    FRAME_ARGS_NEW,
    FRAME_ARGS_OLD,
    FRAME_CAPTURE,
    FRAME_FORWARD,
    FRAME_LOAD,
    FRAME_MLP,
    FRAME_POOL,
    OOM,
    OUT,
    OUT_OLD,
    PACKAGE,
    Log,
)

CORPUS = ROOT / "tests/serving/launch/diagnosis/corpus"
LABELS = CORPUS / "labels.yaml"


@dataclass
class Case:
    """A composed log and its label."""

    name: str
    log: Log
    cause: str
    phase: str
    fraction: str = "none"
    """Which way `mem_fraction_static` has to go."""
    served: bool = False
    rule: str | None = None
    wrap: Callable[[list[str]], str] = "\n".join


def start(version: str, *ranks: str) -> Log:
    """A start up to the distributed initialisation."""
    log = Log(version, ranks or ("",))
    return log.arguments().baseline()


def memory_at_start() -> Iterator[Case]:
    """Weights, pool and captures, release by release."""
    for version in ("0.4.6.post5", "0.5.2", "0.5.10.post1", "0.5.14", "0.5.23"):
        error = OUT_OLD if version == "0.4.6.post5" else OUT
        yield Case(
            f"first-weights-{version}",
            start(version).load_begin().crash(error, FRAME_LOAD, FRAME_MLP),
            "weights-do-not-fit", "load target weights",
        )  # fmt: skip
    log = Log("0.5.23").arguments(device="cpu").baseline().load_begin()
    error = (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] data. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 234881024 bytes. Error code 12 (Cannot allocate "
        "memory)"
    )
    yield Case("first-weights-cpu-0.5.23", log.crash(error, FRAME_LOAD, FRAME_MLP),
               "weights-exceed-machine", "load target weights")  # fmt: skip
    for version in ("0.4.10.post2", "0.5.6.post2", "0.5.13.post1"):
        log = start(version).weights().pool().capture_begin().capture_end().load_begin(9.1)
        frame = ("speculative/eagle_worker.py", "__init__", "super().__init__(")
        yield Case(
            f"second-weights-{version}", log.crash(OUT, frame, FRAME_LOAD),
            "draft-weights-do-not-fit", "load draft weights", "lower",
        )  # fmt: skip
    for version in ("0.5.14", "0.5.20", "0.5.23"):
        log = start(version).load_begin().load_end().load_begin(1.1)
        yield Case(
            f"second-weights-{version}", log.crash(OUT, FRAME_LOAD),
            "weights-do-not-fit", "load draft weights",
        )  # fmt: skip
    says = {
        "0.4.6.post5": "",
        "0.5.5.post3": " Current value: self.server_args.mem_fraction_static=0.7",
        "0.5.10.post1": " Current value: mem_fraction_static=0.7",
        "0.5.23": " Current value: mem_fraction_static=0.7",
    }
    for version, value in says.items():
        error = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
        yield Case(
            f"no-page-{version}", start(version).weights().crash(error + value),
            "kv-pool-too-small",
            "load draft weights" if version == "0.5.23" else "load target weights", "raise",
        )  # fmt: skip
    for version in ("0.5.14", "0.5.18", "0.5.23"):
        error = (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under "
            "--mem-fraction-static=0.5. Raise --mem-fraction-static above 0.913 (minimum viable = "
            "1 - available/pre = 0.9124). If using speculative decoding, draft weights are now "
            "counted."
        )
        yield Case(
            f"fraction-used-up-{version}", start(version).weights().crash(error),
            "weights-exceed-fraction", "load draft weights", "raise",
        )  # fmt: skip
    hybrid = (
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
        "Computed max_mamba_cache_size=-3 (total_rest_memory=-0.21 GB, "
        "mamba_cache_per_req=73.40 MB). Try: (1) reduce --max-running-requests, (2) increase "
        "--mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or (4) use GPUs with "
        "more memory."
    )
    slots = (
        "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any "
        "requests. max_mamba_cache_size=2, mamba_ratio=3, resulting max_num_reqs=0. Try: (1) "
        "reduce --max-running-requests, (2) increase --mem-fraction-static, or (3) use GPUs with "
        "more memory."
    )
    yield Case("hybrid-memory-0.5.13.post1", start("0.5.13.post1").weights().crash(hybrid),
               "state-cache-too-small", "load target weights", "raise")  # fmt: skip
    yield Case("hybrid-slots-0.5.22", start("0.5.22").weights().crash(slots),
               "state-cache-too-small", "load draft weights", "raise")  # fmt: skip
    for version in ("0.5.3.post3", "0.5.12.post1", "0.5.19"):
        phase = "load target weights" if version != "0.5.19" else "load draft weights"
        yield Case(
            f"pool-{version}", start(version).weights().crash(OUT, FRAME_POOL),
            "pool-exceeds-gpu", phase, "lower",
        )  # fmt: skip
    host = (
        "ValueError: Not enough host memory available. Requesting 512.00 GB but only have "
        "96.11 GB free. Please reduce the size of the hierarchical cache."
    )
    yield Case("host-cache-0.5.10.post1", start("0.5.10.post1").weights().pool().crash(host),
               "host-cache-too-large", "allocate KV cache")  # fmt: skip
    unbalanced = (
        "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "{}=38.1, local_gpu_memory=78.4, local_gpu_memory * 0.9=70.56"
    )
    for version, kind, name in (
        ("0.4.6.post5", "ValueError", "min_per_gpu_memory"),
        ("0.5.23", "RuntimeError", "pre_model_load_memory"),
    ):
        log = Log(version, ("TP0", "TP1")).arguments()
        yield Case(
            f"unbalanced-{version}",
            log.crash(f"{kind}: {unbalanced.format(name)}", rank="TP1"),
            "gpus-unbalanced", "start scheduler",
        )  # fmt: skip
    yield Case("device-taken-0.5.10.post1",
               start("0.5.10.post1").crash(OUT, ("layers/dp_attention.py", "f", "torch.empty(")),
               "gpu-taken", "start scheduler")  # fmt: skip


def captures() -> Iterator[Case]:
    """What comes after the colon of a failed capture."""
    wordings = {
        "0.4.6.post5": ("Capture CUDA graph failed", ADVICE_OLD),
        "0.4.10.post2": ("Capture cuda graph failed", ADVICE_OLD),
        "0.5.10.post1": ("Capture cuda graph failed", ADVICE_OLD),
        "0.5.13.post1": ("Capture cuda graph failed", ADVICE_OLD),
        "0.5.14": ("Capture cuda graph failed", ADVICE_NEW),
        "0.5.20": ("Capture cuda graph failed", ADVICE_NEW),
        "0.5.23": ("Capture cuda graph failed", ADVICE_NEW),
    }
    for version, (head, advice) in wordings.items():
        log = start(version).weights().pool().capture_begin()
        log.crash(
            f"{OUT}\n\nDuring handling of the above exception, another exception occurred:\n\n"
            f"Traceback (most recent call last):\n"
            f'  File "{PACKAGE}/model_executor/cuda_graph_runner.py", line 9, in __init__\n'
            f"    raise Exception(\nException: {head}: {OOM}\n{advice}",
            FRAME_CAPTURE,
        )
        yield Case(f"capture-{version}", log, "capture-out-of-memory",
                   "capture CUDA graphs", "lower")  # fmt: skip
    others = {
        "dtype": ("expected mat1 and mat2 to have the same dtype, but got: float != c10::Half",
                  "draft-dtype-differs", "SPL401"),
        "width": ("mat1 and mat2 shapes cannot be multiplied (4x8192 and 6144x4096)",
                  "draft-shape-differs", "SPL409"),
        "illegal": ("CUDA error: an illegal memory access was encountered\nCUDA kernel errors "
                    "might be asynchronously reported at some other API call",
                    "illegal-memory-access", None),
        "assert": ("CUDA error: device-side assert triggered", "device-assertion", None),
        "shared": ("out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
                   "kernel-out-of-resources", None),
        "other": ("The expanded size of the tensor (64) must match the existing size (48)",
                  "capture-failed", None),
        "image": ("CUDA error: no kernel image is available for execution on the device",
                  "kernel-not-built-for-gpu", None),
    }  # fmt: skip
    for name, (text, cause, rule) in others.items():
        for version in ("0.5.8.post1", "0.5.21") if name in ("dtype", "illegal") else ("0.5.16",):
            log = start(version).weights().pool().capture_begin(draft=True)
            advice = ADVICE_NEW if log.since("0.5.14") else ADVICE_OLD
            yield Case(
                f"capture-{name}-{version}",
                log.crash(f"Exception: Capture cuda graph failed: {text}\n{advice}"),
                cause, "capture CUDA graphs", rule=rule,
            )  # fmt: skip
    log = start("0.5.17").weights().pool()
    log.all("Capture target prefill CUDA graph begin. backend=tc_piecewise, num_tokens=[4, 8], "
            "avail mem=3.10 GB")  # fmt: skip
    yield Case(
        "prefill-capture-0.5.17",
        log.crash(f"Exception: Capture prefill CUDA graph failed: {OOM}\nFail when using backend: "
                  "tc_piecewise for prefill runner.\nPossible suggestions:"),
        "prefill-capture-out-of-memory", "capture CUDA graphs", "lower",
    )  # fmt: skip
    log = start("0.5.18").weights().pool().capture_begin(draft=True)
    yield Case(
        "single-capture-0.5.18",
        log.crash(f"Exception: Capture single-CG draft extend failed: {OOM}\n{ADVICE_NEW}"),
        "capture-out-of-memory", "capture CUDA graphs", "lower",
    )  # fmt: skip
    log = start("0.5.12.post1").weights().pool().capture_begin().capture_end()
    log.load_begin(4.1).load_end("LlamaForCausalLMEagle3", 3.5).pool(free=2.2)
    yield Case(
        "draft-capture-0.5.12.post1",
        log.capture_begin(draft=True).crash(
            f"Exception: Capture cuda graph failed: {OOM}\n{ADVICE_OLD}"),
        "capture-out-of-memory", "capture CUDA graphs", "lower",
    )  # fmt: skip


def serving() -> Iterator[Case]:
    """After it was ready."""
    for version, text in (
        ("0.4.6.post5", "Prefill out of memory. Try to lower your batch size."),
        ("0.5.10.post1", "Decode out of memory. Try to lower your batch size."),
        ("0.5.23", "Prefill out of memory. Try to lower your batch size."),
        ("0.5.12.post1", "Out of memory. Try to lower your batch size."),
    ):
        log = start(version).serving()
        log.say(text).raw("Try to allocate 4096 tokens.", "Available tokens: 211")
        yield Case(
            f"pool-full-{version}",
            log.crash(f"RuntimeError: {text}\nTry to allocate 4096 tokens.", FRAME_FORWARD),
            "pool-exhausted", "ready", "raise", served=True,
        )  # fmt: skip
    for version, text in (
        ("0.5.5.post3", "Failed to retract any request. No space left for only one request."),
        ("0.5.8.post1", "Out of memory even after retracting all other requests in the decode "
                        "batch."),
    ):  # fmt: skip
        log = start(version).serving()
        log.say("KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0")
        yield Case(f"retract-{version}", log.crash(f"ValueError: {text}", FRAME_FORWARD),
                   "pool-exhausted", "ready", "raise", served=True)  # fmt: skip
    slots = (
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for "
        "`--max-running-requests`. req_to_token_pool.available_size()=0, num_reqs=4, "
    )
    yield Case("slots-0.5.20", start("0.5.20").serving().crash(slots, FRAME_FORWARD),
               "request-slots-exhausted", "ready", served=True)  # fmt: skip
    mamba = (
        "AssertionError: Not enough space for mamba cache, try to increase "
        "--mamba-full-memory-ratio or --max-mamba-cache-size."
    )
    yield Case("mamba-slots-0.5.20", start("0.5.20").serving().crash(mamba, FRAME_FORWARD),
               "state-cache-exhausted", "ready", served=True)  # fmt: skip
    for version in ("0.4.10.post2", "0.5.11", "0.5.23"):
        log = start(version).serving().batch()
        yield Case(f"forward-{version}", log.crash(OUT, FRAME_FORWARD, FRAME_MLP),
                   "forward-out-of-memory", "ready", "lower", served=True)  # fmt: skip
    log = start("0.5.15.post1").captured().summary()
    yield Case("warm-up-0.5.15.post1", log.crash(OUT, FRAME_FORWARD, FRAME_MLP),
               "forward-out-of-memory", "warm up", "lower")  # fmt: skip
    leak = "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=1, "
    yield Case("leak-0.4.6.post5", start("0.4.6.post5").serving().crash(leak, FRAME_FORWARD),
               "pool-leak", "ready", served=True)  # fmt: skip
    log = start("0.5.4.post3").serving().say("Watchdog timeout (self.watchdog_timeout=300)")
    yield Case("hang-0.5.4.post3", log.sigquit(), "engine-hung", "ready", served=True)
    log = start("0.5.19").serving()
    log.say("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)")
    yield Case("hang-0.5.19", log.sigquit(), "engine-hung", "ready", served=True)
    illegal = (
        "RuntimeError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors "
        "might be asynchronously reported at some other API call, so the stacktrace below might "
        "be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    )
    yield Case("illegal-0.5.2", start("0.5.2").serving().crash(illegal, FRAME_FORWARD),
               "illegal-memory-access", "ready", served=True)  # fmt: skip
    modern = illegal.replace("RuntimeError", "torch.AcceleratorError")
    yield Case("illegal-0.5.18", start("0.5.18").serving().crash(modern, FRAME_FORWARD),
               "illegal-memory-access", "ready", served=True)  # fmt: skip
    log = start("0.4.10.post2").serving()
    log.raw(
        "/pytorch/aten/src/ATen/native/cuda/ScatterGatherKernel.cu:163: operator(): block: [0,0,0]"
        ', thread: [1,0,0] Assertion `idx_dim >= 0 && idx_dim < index_size && "scatter gather '
        'kernel index out of bounds"` failed.'
    )
    yield Case("scatter-0.4.10.post2", log.crash(
        "RuntimeError: CUDA error: device-side assert triggered", FRAME_FORWARD),
        "device-assertion", "ready", served=True)  # fmt: skip
    nan = "ValueError: Detected errors during sampling! NaN in the logits."
    yield Case("nan-0.5.6.post2", start("0.5.6.post2").serving().crash(nan, FRAME_FORWARD),
               "nan-in-logits", "ready", served=True)  # fmt: skip
    log = start("0.5.14").serving()
    log.say("Subprocess scheduler_0 (pid=4800) crashed with exit code -6. Triggering SIGQUIT for "
            "cleanup...")  # fmt: skip
    log.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    yield Case("abort-0.5.14", log, "process-crashed", "ready", served=True)
    tree = (
        "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 6 but got "
        "size 8 for tensor number 1 in the list."
    )
    yield Case("tree-0.5.4.post3", start("0.5.4.post3").serving().crash(tree, FRAME_FORWARD),
               "kernel-shapes", "ready", served=True)  # fmt: skip


def ranks() -> Iterator[Case]:
    """Several ranks: one fails, the others say what became of them."""
    log = start("0.5.10.post1", "TP0", "TP1").load_begin()
    log.load_end(rank="TP0")
    log.say("Scheduler hit an exception: Traceback (most recent call last):", "TP0")
    log.frames(FRAME_LOAD).raw(
        "ValueError: TP rank 0 could finish the model loading, but there are other ranks that "
        "didn't finish loading. It is likely due to unexpected failures (e.g., OOM) or a slow "
        "node.", "",
    )  # fmt: skip
    yield Case("rank-weights-0.5.10.post1", log.crash(OUT, FRAME_LOAD, rank="TP1"),
               "weights-do-not-fit", "load target weights")  # fmt: skip
    log = start("0.5.20", "DP0 TP0", "DP1 TP1").weights().pool().capture_begin()
    log.say("Scheduler hit an exception: Traceback (most recent call last):", "DP0 TP0")
    log.frames(FRAME_CAPTURE).raw("RuntimeError: NCCL error: unhandled cuda error", "")
    yield Case("rank-capture-0.5.20", log.crash(
        f"Exception: Capture cuda graph failed: {OOM}\n{ADVICE_NEW}", rank="DP1 TP1"),
        "capture-out-of-memory", "capture CUDA graphs", "lower")  # fmt: skip
    log = start("0.5.12.post1", "TP0", "TP1").serving()
    log.raw("node1:99:312 [1] misc/socket.cc:64 NCCL WARN Connection closed by remote peer")
    log.crash("RuntimeError: NCCL error: remote process exited or there was a network error",
              FRAME_FORWARD, rank="TP1")  # fmt: skip
    yield Case("nccl-0.5.12.post1", log, "nccl-failed", "ready", served=True)
    inside = (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
        "ProcessGroupNCCL.cpp:3690, unhandled cuda error (run with NCCL_DEBUG=INFO for details), "
        "NCCL version 2.27.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 2 'out of memory'"
    )
    yield Case("nccl-memory-0.5.16", start("0.5.16", "TP0", "TP1").weights().pool()
               .crash(inside, rank="TP0"),
               "nccl-out-of-memory", "allocate KV cache", "lower")  # fmt: skip
    log = start("0.5.10.post1").load_begin()
    log.traceback(
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code "
        "is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to "
        "check.",
        ("entrypoints/engine.py", "_wait_for_scheduler_ready", "raise _scheduler_died_error("),
    )
    yield Case("killed-0.5.10.post1", log, "killed-while-starting", "load target weights")
    log = Log("0.5.23").arguments(device="cpu").baseline().weights()
    log.traceback(
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code "
        "is -9 (SIGKILL), a common cause is the OS OOM killer.",
        ("entrypoints/engine.py", "_wait_for_scheduler_ready", "raise _scheduler_died_error("),
    )
    yield Case("killed-cpu-0.5.23", log, "killed-filling-pool", "load draft weights", "lower")
    log = Log("0.5.23").arguments(device="cpu").baseline().weights()
    yield Case("pool-cpu-0.5.23", log.crash(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 943718400000 bytes. Error code 12 (Cannot "
        "allocate memory)", FRAME_POOL),
        "pool-exceeds-machine", "load draft weights", "lower")  # fmt: skip


def arguments() -> Iterator[Case]:
    """Before anything is loaded."""
    usage = ("usage: launch_server.py [-h] --model-path MODEL_PATH", "  [--host HOST]")
    for name, version, error, cause, rule in (
        ("unknown", "0.5.3.post3", "unrecognized arguments: --speculative-num-tokens 3",
         "argument-unknown", "SPL001"),
        ("ambiguous", "0.5.23", "ambiguous option: --cuda-graph-max-bs could match "
         "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill", "argument-ambiguous", "SPL002"),
        ("choice", "0.5.2", "argument --speculative-algorithm: invalid choice: 'NGRAM' (choose "
         "from 'EAGLE', 'EAGLE3', 'NEXTN', 'STANDALONE')", "speculative-algorithm-unknown",
         "SPL101"),
        ("type", "0.5.18", "argument --speculative-num-steps: invalid int value: 'three'",
         "argument-value-refused", "SPL003"),
        ("required", "0.4.10.post2", "the following arguments are required: --model-path/--model",
         "model-not-named", "SPL004"),
    ):  # fmt: skip
        program = "sglang serve" if version == "0.5.23" else "launch_server.py"
        yield Case(f"argparse-{name}", Log(version).raw(*usage, f"{program}: error: {error}"),
                   cause, "import SGLang", rule=rule)  # fmt: skip
    refusals = (
        ("0.5.10.post1", "ValueError: Spec v2 currently only supports topk = 1 for speculative "
         "decoding.", "arguments-refused", "SPL201"),
        ("0.5.23", "ValueError: Currently standalone speculative decoding does not support dp "
         "attention.", "arguments-refused", "SPL212"),
        ("0.5.20", "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on "
         "('flashinfer', 'fa3', 'triton'); got attention_backend=trtllm_mha.",
         "arguments-refused", "SPL301"),
        ("0.5.8.post1", "AssertionError: Pipeline parallelism is not compatible with overlap "
         "schedule, speculative decoding, mixed chunked prefill.", "arguments-refused", "SPL221"),
        ("0.5.16", "ValueError: DFLASH speculative decoding requires setting "
         "--speculative-draft-model-path.", "arguments-refused", "SPL602"),
        ("0.5.22", "AssertionError: a limit that nobody has seen yet", "arguments-refused", None),
        ("0.5.6.post2", "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
         "speculative-parameters-incomplete", "SPL103"),
    )  # fmt: skip
    for version, error, cause, rule in refusals:
        log = Log(version)
        frame = FRAME_ARGS_NEW if log.since("0.5.14") else FRAME_ARGS_OLD
        name = f"refused-{rule or 'unseen'}-{version}"
        yield Case(name.lower(), log.traceback(error, frame), cause, "import SGLang", rule=rule)
    log = Log("0.5.9").traceback("AssertionError", FRAME_ARGS_OLD,
                                 ("server_args.py", "auto_choose_speculative_params",
                                  "assert self.speculative_eagle_topk is None"))  # fmt: skip
    yield Case("incomplete-0.5.9", log, "speculative-parameters-incomplete", "import SGLang",
               rule="SPL102")  # fmt: skip
    log = Log("0.5.10.post1").traceback(
        "Exception: flashinfer_python is installed with version 0.5.1, which is less than the "
        "minimum required version 0.6.7. Please uninstall the old version and reinstall",
        ("entrypoints/engine.py", "_set_envs_and_config", "assert_pkg_version("))  # fmt: skip
    yield Case("package-0.5.10.post1", log, "package-version", "import SGLang")


def files() -> Iterator[Case]:
    """Models that are not there, not whole, or not known."""
    texts = (
        ("weights", "0.5.3.post3", "RuntimeError: Cannot find any model weights with "
         "`/models/target`", "weights-not-found", None),
        ("hub", "0.5.10.post1", "OSError: nobody/nothing is not a local folder and is not a valid "
         "model identifier listed on 'https://huggingface.co/models'", "model-not-found", None),
        ("gated", "0.5.18", "OSError: You are trying to access a gated repo.\nMake sure to have "
         "access to it", "model-access-denied", None),
        ("arch", "0.5.2", "ValueError: Model architectures ['LlamaForCausalLMEagle9'] are not "
         "supported for now. Supported architectures: dict_keys(['LlamaForCausalLM'])",
         "architecture-unknown", None),
        ("module", "0.5.20", "ValueError: Cannot find model module. 'Eagle9' is not a registered "
         "model in the Transformers library", "architecture-unknown", None),
        ("context", "0.5.8.post1", "ValueError: Warning: Target model's context_length (8192) is "
         "greater than the derived context_length (2048). This may lead to incorrect model outputs "
         "or CUDA errors. To allow overriding this maximum, set the env var "
         "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1", "context-too-long", "SPL402"),
        ("context", "0.4.6.post5", "ValueError: User-specified context_length (65536) is greater "
         "than the derived context_length (32768). This may lead to incorrect model outputs or "
         "CUDA errors.", "context-too-long", "SPL418"),
        ("vocabulary", "0.5.15.post1", "ValueError: STANDALONE speculative decoding requires the "
         "draft model to share the same vocabulary as the target model, but got target "
         "vocab_size=152064 and draft vocab_size=151936.", "draft-vocabulary-differs", "SPL411"),
        ("layers", "0.5.2", "ValueError: EAGLE3 currently only supports 1 layer", "draft-layers",
         "SPL408"),
        ("safetensors", "0.5.21", "safetensors_rust.SafetensorError: Error while deserializing "
         "header: header too large", "weights-damaged", None),
        ("disk", "0.5.12.post1", "OSError: [Errno 28] No space left on device", "disk-full", None),
        ("quantization", "0.5.13.post1", "ValueError: Quantization method specified in the model "
         "config (awq) does not match the quantization method specified in the `quantization` "
         "argument (fp8).", "quantization-mismatch", "SPL427"),
    )  # fmt: skip
    for name, version, error, cause, rule in texts:
        log = start(version).load_begin()
        yield Case(f"files-{name}-{version}", log.crash(error, FRAME_LOAD), cause,
                   "load target weights", rule=rule)  # fmt: skip
    for model, version in (("LlamaForCausalLM", "0.5.17"), ("Qwen2ForCausalLM", "0.5.11")):
        log = start(version).weights()
        phase = "load draft weights" if log.since("0.5.14") else "load target weights"
        yield Case(
            f"draft-missing-{version}",
            log.crash(f"AttributeError: '{model}' object has no attribute 'hot_token_id'"),
            "draft-missing", phase, rule="SPL404",
        )  # fmt: skip


def network() -> Iterator[Case]:
    """Ports, and ranks that do not meet."""
    error = (
        "ValueError: nccl_port at 28765 is not available in 30 seconds. nccl_port is used by a "
        "process already."
    )
    yield Case("port-wait-0.5.12.post1", Log("0.5.12.post1").arguments().traceback(
        error, ("utils/network.py", "wait_port_available", "raise ValueError(")),
        "port-taken", "start scheduler")  # fmt: skip
    error = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 28765, useIpv6: false, code: -98, name: EADDRINUSE, message: "
        "address already in use"
    )
    yield Case("store-port-0.5.18", Log("0.5.18").arguments().crash(error),
               "rendezvous-port-taken", "start scheduler")  # fmt: skip
    error = (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
        "clients joined."
    )
    yield Case("rendezvous-0.5.20", Log("0.5.20").arguments(nnodes=2).crash(error),
               "rendezvous-failed", "start scheduler")  # fmt: skip
    yield Case("no-gpu-0.5.19", Log("0.5.19").traceback(
        "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is "
        "available.", ("utils/common.py", "get_device", "raise RuntimeError(")),
        "no-gpu", "import SGLang")  # fmt: skip


def disguised() -> Iterator[Case]:
    """The same texts as collectors, terminals and other programs hand them on."""
    plain = start("0.5.10.post1").load_begin().load_end()
    plain.crash("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
                "Current value: mem_fraction_static=0.6")  # fmt: skip
    lines = plain.lines

    def each(put: Callable[[int, str], str], end: str = "\n") -> Callable[[list[str]], str]:
        return lambda given: end.join(put(number, line) for number, line in enumerate(given)) + end

    stamp = "2026-03-04T10:00:{:02}.123456789Z"
    shapes: dict[str, Callable[[list[str]], str]] = {
        "windows": each(lambda _, line: line, "\r\n"),
        "compose": each(lambda _, line: f"sglang-1  | {line}"),
        "docker": each(lambda n, line: f"{stamp.format(n % 60)} {line}"),
        "container": each(lambda n, line: f"{stamp.format(n % 60)} stderr F {line}"),
        "kubectl": each(lambda _, line: f"[pod/sglang-0/sglang] {line}"),
        "journal": each(lambda _, line: f"Mar 04 10:00:01 node1 sglang[4711]: {line}"),
        "ray": each(lambda _, line: f"\x1b[36m(SGLangEngine pid=4711, ip=10.0.0.7)\x1b[0m {line}"),
        "srun": each(lambda _, line: f"0: {line}"),
        "color": each(lambda _, line: f"\x1b[31m{line}\x1b[0m"),
        "truncated-head": lambda given: "\n".join(given[3:]),
        "truncated-tail": lambda given: "\n".join(given[:-2]),
        "twice": lambda given: "\n".join([*start("0.5.10.post1").serving().lines, *given]),
        "broken-bytes": lambda given: "\udcff\udcfe\n" + "\n".join(given),
    }
    for name, wrap in shapes.items():
        yield Case(f"shape-{name}", Log("0.5.10.post1", lines=list(lines)),
                   "kv-pool-too-small", "load target weights", "raise", wrap=wrap)  # fmt: skip
    for bar in (
        "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]",
        "Capturing batches (bs=48 avail_mem=14.40 GB):   2%|2     | 1/47 [00:01<00:53,  1.1s/it]",
    ):
        capturing = bar.startswith("Capturing")
        log = start("0.5.10.post1", "TP0").load_begin()
        if capturing:
            log.load_end().pool().capture_begin()
        before = len(log.lines)
        log.crash(OUT, FRAME_CAPTURE if capturing else FRAME_LOAD, rank="TP0")
        log.lines[before] = bar + log.lines[before]
        yield Case(
            f"shape-bar-{'capture' if capturing else 'weights'}", log,
            "capture-out-of-memory" if capturing else "weights-do-not-fit",
            "capture CUDA graphs" if capturing else "load target weights",
            "lower" if capturing else "none",
        )  # fmt: skip
    log = start("0.5.10.post1").load_begin().load_end().pool().capture_begin()
    asked = "'Why: RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.'"
    log.say(f"Receive: obj=GenerateReqInput(rid='1', text={asked})")
    yield Case("shape-quoted", log.crash(f"Exception: Capture cuda graph failed: {OOM}\n"),
               "capture-out-of-memory", "capture CUDA graphs", "lower")  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them."""
    for group in (memory_at_start, captures, serving, ranks, arguments, files, network, disguised):
        yield from group()


def main() -> None:
    """Write the logs, and their labels beside those of the real ones."""
    labels = {
        name: label
        for name, label in (yaml.safe_load(LABELS.read_text()) if LABELS.exists() else {}).items()
        if label["origin"] != "composed"
    }
    for old in CORPUS.glob("*.log"):
        if old.stem not in labels:
            old.unlink()
    for case in cases():
        if case.name in labels:
            raise SystemExit(f"two logs are called {case.name}")
        text = case.wrap(case.log.lines)
        (CORPUS / f"{case.name}.log").write_bytes(text.encode(errors="surrogateescape"))
        labels[case.name] = {
            "origin": "composed",
            "engine": case.log.version,
            "cause": case.cause,
            "fraction": case.fraction,
            "phase": case.phase,
            "served": case.served,
            "rule": case.rule,
        }
    LABELS.write_text(yaml.safe_dump(dict(sorted(labels.items())), sort_keys=False, width=100))
    print(f"{len(labels)} labelled logs, {len(list(cases()))} of them composed")


if __name__ == "__main__":
    main()
