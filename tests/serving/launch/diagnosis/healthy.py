"""Logs without a failure: starts of many releases that serve hostile texts, and other programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speclaunch.engine.releases.catalogue import held_versions
from tests.support.serving.launch.failure_log import Log

ROOT = Path(__file__).resolve().parents[4]

HOSTILE = (
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "Exception: Capture cuda graph failed: CUDA out of memory",
    "Scheduler hit an exception: Traceback (most recent call last):",
    "Received sigquit from a child process. It usually means the child failed.",
    "the zoom room bloomed: no oom here, only boom and doom",
    "sglang serve: error: unrecognized arguments: --no-such-flag",
    "Subprocess scheduler_0 (pid=1) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
    "[2026-01-01 00:00:00] Initialization failed. warmup error: Traceback (most recent call last):",
    "ValueError: Unknown speculative algorithm name: FOO",
    "CUDA error: an illegal memory access was encountered",
    "Decode out of memory. Try to lower your batch size.",
)
_ACCESS = (
    'INFO:     10.0.0.{n}:4{n:03} - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request',
    'INFO:     10.0.0.{n}:4{n:03} - "POST /generate HTTP/1.1" 200 OK',
    'INFO:     10.0.0.{n}:4{n:03} - "GET /OutOfMemoryError?q=CUDA%20out%20of%20memory HTTP/1.1" '
    "404 Not Found",
    'INFO:     10.0.0.{n}:4{n:03} - "GET /health HTTP/1.1" 503 Service Unavailable',
)
_SURVIVED = (
    "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.4 -> 0.9",
    "Ignore import error when loading sglang.srt.models.mamba: ImportError: CUDA out of memory",
    "[http_server] Error: Input length (9001 tokens) exceeds the maximum allowed length (8185 "
    "tokens). Use a shorter input or enable --allow-auto-truncate.",
    "max_total_tokens=900000 is larger than the profiled value 301234. Use the profiled value "
    "instead.",
    "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
    "pre_model_load_memory=70.1, local_gpu_memory=78.4, local_gpu_memory * 0.9=70.56",
    "Available memory 3.1GB is less than required memory 4GB for warmup, reducing max_m to 4096 "
    "to avoid out of memory",
    "OpenAI Responses API (/v1/responses) disabled: OpenAIServingResponses init failed "
    "(ModuleNotFoundError: No module named 'openai_harmony')",
    "port 30000 is in use. Waiting for 1 seconds for nccl_port to be available. nccl_port is used "
    "by a process already.",
    "NaN detected in logits; values were sanitized before sampling. Logged once.",
    "retract_decode: aborted last request 17 due to OOM",
)
_REQUEST_ERROR = (
    "ERROR:    Exception in ASGI application",
    "Traceback (most recent call last):",
    '  File "/x/sglang/srt/entrypoints/http_server.py", line 1, in generate_request',
    "    raise ValueError(text)",
    "ValueError: CUDA out of memory, says the user",
)


def starts() -> Iterator[tuple[str, str]]:
    """A start that serves, for every release, with one or several ranks, and what users send."""
    for position, version in enumerate(held_versions()):
        for ranks in (("",), ("TP0", "TP1"), ("DP0 TP0", "DP1 TP1"), ("PP0 TP0", "PP1 TP0")):
            log = Log(version, ranks)
            model = HOSTILE[(position + len(ranks[0])) % len(HOSTILE)]
            log.arguments(model_path=f"/models/bloom-oom-{model}", served_model_name="CUDA OOM")
            log.say(_SURVIVED[(position + 1) % len(_SURVIVED)])
            log.baseline().serving()
            for number, hostile in enumerate(HOSTILE):
                log.say(f"Receive: obj=GenerateReqInput(rid='{number}', text={hostile!r})")
                log.say(_ACCESS[number % len(_ACCESS)].format(n=number), "")
                if not hostile.startswith("["):
                    log.say(f"Finish: obj=GenerateReqInput(text={hostile + chr(10)!r}), out={{}}")
            log.raw("a prompt: 50% of 3 [2026-03-04 10:00:00] Scheduler hit an exception: no")
            log.raw(
                "50%|##  | 1/2 [00:01<00:01, 1.0it/s] [2026-03-04] Capture cuda graph failed: no"
            )
            for survived in _SURVIVED:
                log.say(survived)
            log.say(_REQUEST_ERROR[0]).raw(*_REQUEST_ERROR[1:]).batch()
            yield f"{version}-{'-'.join(ranks).replace(' ', '') or 'one'}", "\n".join(log.lines)


OOM_OF_OTHERS = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
OTHERS: dict[str, str] = {
    "empty": "",
    "blank": "\n\n\n",
    "nginx": '10.0.0.1 - - [04/Mar/2026:10:00:00 +0000] "GET /sglang/oom HTTP/1.1" 502 157 "-"\n'
    "2026/03/04 10:00:00 [error] 31#31: *1 connect() failed (111: Connection refused)",
    "nginx-bind": "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address already in use)",
    "postgres": "2026-03-04 10:00:00.123 UTC [71] ERROR:  out of memory\n"
    "2026-03-04 10:00:00.123 UTC [71] DETAIL:  Failed on request of size 256.",
    "kernel": "[ 4711.123456] Out of memory: Killed process 99 (python) total-vm:99kB\n"
    "[ 4711.123457] oom_reaper: reaped process 99 (python), now anon-rss:0kB",
    "dmesg-time": "[Wed Mar  4 10:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 31, pid=99",
    "vllm": "INFO 03-04 10:00:00 [core.py:58] Initializing a V1 LLM engine\n"
    "(EngineCore pid=99) ERROR 03-04 10:00:01 [core.py:1] EngineCore failed to start.\n"
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3/vllm/v1/engine/core.py", line 9, in run_engine_core\n'
    "    engine_core = EngineCoreProc(*args)\n"
    f"{OOM_OF_OTHERS}",
    "vllm-cache": "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.",
    "vllm-capture": "Capturing CUDA graph shapes: 100%|##########| 35/35 [00:20<00:00]\n"
    "INFO 03-04 10:00:00 [gpu_model_runner.py:1] Graph capturing finished in 20 secs",
    "torch-training": "Traceback (most recent call last):\n"
    '  File "/home/me/train.py", line 3, in <module>\n    loss.backward()\n'
    f"{OOM_OF_OTHERS}",
    "torchrun": "[rank1]:[E304 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)",
    "pytest": "============ test session starts ============\n"
    "E   RuntimeError: Not enough values to unpack\n"
    "FAILED tests/test_oom.py::test_room - AssertionError: CUDA out of memory",
    "pip": "Collecting sglang[all]\n  Downloading sglang-0.5.23-py3-none-any.whl (9.9 MB)\n"
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
    "argparse-of-others": "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lr 3",
    "bash": "./run.sh: line 3: 4711 Killed                  python train.py\n"
    "./run.sh: line 4: 4712 Segmentation fault      (core dumped) ./a.out",
    "java": 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n'
    "\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)",
    "node": "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
    "go": "fatal error: runtime: out of memory\n\ngoroutine 1 [running]:",
    "rust": "thread 'main' panicked at src/main.rs:2:5:\nmemory allocation of 8 bytes failed",
    "redis": "71:M 04 Mar 2026 10:00:00.000 # Out Of Memory allocating 8 bytes!",
    "mysql": "2026-03-04T10:00:00.000000Z 0 [ERROR] [MY-010262] [Server] Can't start server: Bind "
    "on TCP/IP port: Address already in use",
    "uvicorn": "INFO:     Started server process [99]\nINFO:     Application startup complete.\n"
    "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address "
    "already in use",
    "django": "Traceback (most recent call last):\n"
    '  File "/app/manage.py", line 22, in <module>\n    main()\n'
    "ModuleNotFoundError: No module named 'django'",
    "kubelet": "I0304 10:00:00.000000       1 event.go:1] OOMKilled: Container sglang-tests exited",
    "systemd": "Mar 04 10:00:00 node1 systemd[1]: sglang.service: A process of this unit has been "
    "killed by the OOM killer.",
    "slurm": "srun: error: node1: task 0: Exited with exit code 1",
    "ray": "\x1b[36m(MegatronTrainRayActor pid=77)\x1b[0m Traceback (most recent call last):\n"
    '\x1b[36m(MegatronTrainRayActor pid=77)\x1b[0m   File "/root/Megatron-LM/x.py", line 1, in f\n'
    "\x1b[36m(MegatronTrainRayActor pid=77)\x1b[0m     g()\n"
    f"\x1b[36m(MegatronTrainRayActor pid=77)\x1b[0m {OOM_OF_OTHERS}",
    "tgi": "2026-03-04T10:00:00.000000Z ERROR text_generation_launcher: Error when initializing "
    "model\ntorch.cuda.OutOfMemoryError: CUDA out of memory.",
    "llama-cpp": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9 MiB on device 0: "
    "cudaMalloc failed: out of memory\nerror loading model: unable to allocate CUDA0 buffer",
    "tensorrt": "[TensorRT-LLM][ERROR] CUDA runtime error in cudaMalloc: out of memory",
    "nccl-tests": "node1:9:12 [0] misc/socket.cc:64 NCCL WARN Net : Connect to 10.0.0.1 failed",
    "git": "fatal: not a git repository\nRuntimeError is a word in a commit message",
    "markdown": "# Capture cuda graph failed\n\n| error | remedy |\n|---|---|\n| OOM | lower |",
    "json-lines": '{"log":"hello\\n","stream":"stdout","time":"2026-03-04T10:00:00Z"}\n'
    '{"level":"error","msg":"CUDA out of memory"}\n{"log":3}\n{"log":"broken',
    "make": "make: *** [Makefile:3: all] Error 1\ng++: fatal error: Killed signal terminated",
    "ninja": "ninja: build stopped: subcommand failed.\nRuntimeError: Error building extension 'x'",
    "passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/usr/sbin/nologin",
    "progress": "\r".join(f"Downloading {n}%" for n in range(101)),
    "binary": "\x00\x01\x02\x7fELF\x02\x01\x01\x00" * 40,
    "long-line": "a" * 200_000,
    "headers-only": "\n".join(f"[2026-03-04 10:00:{n:02}] " for n in range(40)),
    "same-header": "[2026-03-04 10:00:00] local.ERROR: Out of memory\n"
    "[2026-03-04 10:00:01 TP0] nothing of note",
    "laravel": "[2026-03-04 10:00:00] production.ERROR: Allowed memory size exhausted "
    '{"exception":"[object] (RuntimeException: out of memory)"}',
    "http-client": "requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', "
    "port=30000): Max retries exceeded (Caused by [Errno 111] Connection refused)",
    "bench": "sglang.bench_serving\nTraffic request rate: inf\nOutput token throughput: 99.0 tok/s",
    "docs": "If you see out-of-memory, lower --mem-fraction-static to 0.8, as the guide says.",
    "help": "usage: sglang serve [-h] --model-path MODEL_PATH\n\noptions:\n  -h, --help  show this",
}


def others() -> Iterator[tuple[str, str]]:
    """Other programs, bare and as collectors hand them on."""
    stamp = "2026-03-04T10:00:00.123456789Z"
    for name, text in OTHERS.items():
        yield name, text
        yield f"{name}-docker", "\n".join(f"{stamp} {line}" for line in text.split("\n"))
