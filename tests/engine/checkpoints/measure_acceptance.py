"""Run drafts on the engine, one after another: cases on standard input, results on standard output.

For the CPU engine's interpreter. SGLang is imported once, and each case runs in a fork of it (two
seconds instead of twenty): `{"name": …, "log": …, "arguments": {…}}` a line, answered by
`{"name": …, "length": …}`, or `{"name": …, "refused": …}` with the engine's last words.
"""

import contextlib
import json
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path

import sglang.srt.managers.detokenizer_manager
import sglang.srt.managers.scheduler
import sglang.srt.speculative.eagle_worker_v2
import sglang.srt.speculative.standalone_worker_v2  # noqa: F401
import torch
from sglang.srt.entrypoints.engine import Engine

PROMPTS = [
    "the quick brown fox jumps over the lazy dog the quick brown fox",
    "Hello! How are you today?",
    "Once upon a time there was",
    "def successor(token): return",
    "When memory runs out the launcher",
    "A draft model proposes a few tokens",
    "It answered every question",
    "Please write a short story about an engineer",
]
TOKENS = 48
SECONDS = 45
COMMON = {
    "device": "cpu",
    "dtype": "float32",
    "mem_fraction_static": 0.3,
    "max_total_tokens": 8192,
    "max_running_requests": len(PROMPTS),
    "disable_radix_cache": True,
    "log_level": "error",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


def run(arguments: dict, result: int) -> None:
    """In the fork: serve, generate, write the acceptance length to the pipe."""
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *_, **__: None  # the engine asks for "spawn"
    engine = Engine(**(COMMON | arguments))
    greedy = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    answers = [one["meta_info"] for one in engine.generate(PROMPTS, greedy)]
    tokens = sum(one["completion_tokens"] for one in answers)
    verified = sum(one["spec_verify_ct"] for one in answers)
    os.write(result, json.dumps({"length": round(tokens / verified, 3)}).encode())


def measure(arguments: dict, log: str) -> dict:
    """What came of one case; nothing of it is left running."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        said = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        os.dup2(said, 1)
        os.dup2(said, 2)
        try:
            run(arguments, writing)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(0)
    os.close(writing)
    os.set_blocking(reading, False)
    ended, end, answer = False, time.monotonic() + SECONDS, b""
    while time.monotonic() < end and not answer:
        with contextlib.suppress(BlockingIOError):
            answer = os.read(reading, 1000)
        if not answer and os.waitpid(child, os.WNOHANG)[0]:
            ended = True
            with contextlib.suppress(BlockingIOError):
                answer = os.read(reading, 1000)
            break
        time.sleep(0.02)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)  # the engine's other processes are in its group
    if not ended:
        os.waitpid(child, 0)
    os.close(reading)
    if answer:
        return json.loads(answer)
    timed_out = time.monotonic() >= end
    return {"refused": last_words(Path(log)) + (" (nothing for 45 s)" if timed_out else "")}


def last_words(log: Path) -> str:
    """The last line of a log that names an error."""
    lines = log.read_text(errors="replace").splitlines()
    named = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception|Interrupt)\b", line)]
    return re.sub(r"/\S*/", "", (named or lines or ["nothing"])[-1])[:200]


def main() -> None:
    """Answer each line."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps({"name": case["name"]} | measure(case["arguments"], case["log"])))
        sys.stdout.flush()


main()
