"""A scripted stand-in for the engine, for faults and speed only: never a user's default.

Prints texts that the real SGLang 0.5.23 prints (recorded on the CPU engine), and answers the three
requests that speclaunch makes. Run as `fake_engine.py BEHAVIOUR PORT`, or through `fake_sglang.py`
as `python -m sglang.launch_server …`, with the behaviour in FAKE_BEHAVIOUR.

`engine` is the whole thing: a scheduler and a detokenizer that each generation goes through, so that
killing or stopping any of them has the consequence that it has for the real engine.

One of several nodes (FAKE_NODES: their number, its rank, the address where they meet) behaves as
the real one was seen to (`nodes.py`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # it is run by its path
import nodes

STAMP = "[2026-11-21 02:16:12]"
START = (
    f"{STAMP} server_args={{'model_path': 'models/cycle'}}",
    f"{STAMP} Load weight begin. avail mem=21.78 GB",
    f"{STAMP} Load weight end. elapsed=0.03 s, type=LlamaForCausalLM, avail mem=21.77 GB, "
    "mem usage=0.00 GB.",
    f"{STAMP} KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8192, K size: 0.00 GB, "
    "V size: 0.00 GB",
    f"{STAMP} Memory pool end. avail mem=20.00 GB",
    f"{STAMP} max_total_num_tokens=8192, chunked_prefill_size=4096, max_prefill_tokens=16384, "
    "max_running_requests=4, context_len=2048, available_cpu_mem=20.00 GB",
    f"{STAMP} INFO:     Application startup complete.",
)
SHARDS = (
    # As 0.5.10 to 0.5.23 draw it (`BAR_FORMAT` of utils/common.py): over itself, without a newline.
    "Multi-thread loading shards:   0% Completed | 0/4 [00:00<?, ?it/s]",
    "Multi-thread loading shards:  25% Completed | 1/4 [00:20<01:00, 20.0s/it]",
    "Multi-thread loading shards:  50% Completed | 2/4 [00:40<00:40, 20.0s/it]",
)
INFO = {
    "model_path": "models/cycle",
    "speculative_algorithm": "NGRAM",
    "speculative_num_draft_tokens": 8,
    "max_running_requests": 4,
}
ACCEPTED = 3.2
"""Tokens per verify step, if FAKE_ACCEPTED names none."""


def prompt_ids(body: dict[str, object]) -> list[int]:
    """The tokens of a prompt: two numbers that tell texts apart."""
    if isinstance(body.get("input_ids"), list):
        return body["input_ids"]
    code = zlib.crc32(str(body.get("text")).encode())
    return [code % 997, code // 997 % 997]


def token(prompt: list[int], place: int) -> int:
    """The greedy token at a place of the answer; FAKE_SHIFT makes it another one from there on."""
    first, second = prompt[:2] if len(prompt) > 1 else (1, 2)
    shift = os.environ.get("FAKE_SHIFT")
    moved = 1 if shift is not None and place >= int(shift) else 0
    return (first * 31 + second * 17 + place * place * 7 + moved) % 1000 + 100


def generated(body: dict[str, object]) -> dict[str, object]:
    """The answer to /generate, with the counters and logprobs that the real one has."""
    sampling = body.get("sampling_params") or {}
    count = int(sampling.get("max_new_tokens", 32))
    prompt = prompt_ids(body)
    accepted = float(os.environ.get("FAKE_ACCEPTED", ACCEPTED))
    meta: dict[str, object] = {
        "prompt_tokens": len(prompt),
        "completion_tokens": count,
        "spec_verify_ct": max(1, round(count / accepted)),
        "spec_accept_length": accepted,
    }
    start = body.get("logprob_start_len")
    if body.get("return_logprob") and isinstance(start, int):
        # an answer after its prompt of two tokens is scored: the own token is the best by far
        scored = [(at, prompt[at]) for at in range(start, len(prompt))]
        pairs = [(one, token(prompt, at - 2) if at > 1 else one) for at, one in scored]
        gap = float(os.environ.get("FAKE_GAP", "5"))
        meta["input_token_logprobs"] = [
            [-0.1 if one == best else -0.1 - gap, one, str(one)] for one, best in pairs
        ]
        meta["input_top_logprobs"] = [[[-0.1, best, str(best)]] for _, best in pairs]
    ids = [token(prompt, place) for place in range(count)]
    found = {"text": "again and again", "output_ids": ids, "meta_info": meta}
    if body.get("return_prompt_token_ids"):
        found["prompt_token_ids"] = prompt
    return found


def say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


MEMORY_ERRORS = {
    # Exact texts of 0.5.23: model_runner_kv_cache_mixin.py, torch.
    "raise": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
    "Current value: self.server_args.mem_fraction_static={fraction}",
    "lower": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
    "total capacity of 79.11 GiB of which 1.00 GiB is free.",
}


class Worker:
    """A process of the engine that echoes what it is sent, line by line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise OSError("it has ended")

    def watch(self, workers: list[Worker]) -> None:
        """What the engine's own watchdog does (utils/watchdog.py): one gone, all gone."""
        code = self.process.wait()
        say(
            f"{STAMP} Subprocess {self.name}_0 (pid={self.process.pid}) crashed with exit code "
            f"{code}. Triggering SIGQUIT for cleanup...",
            f"{STAMP} SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        )
        for worker in workers:
            worker.process.kill()
        os.kill(os.getpid(), signal.SIGKILL)


def work(name: str) -> None:
    """The life of a worker."""
    try:
        import setproctitle

        setproctitle.setproctitle(f"sglang::{name}")
    except ImportError:
        pass
    for _ in sys.stdin:
        if name == "scheduler":
            print(f"{STAMP} Decode batch, #running-req: 1, #token: 8", file=sys.stderr, flush=True)
        print("done", flush=True)


class Handler(BaseHTTPRequestHandler):
    behaviour = "serve"
    workers: tuple[Worker, ...] = ()
    asking = threading.Lock()
    generated = 0

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.behaviour == "worker":  # utils/common.py launch_dummy_health_check_server
            known = self.path in ("/health", "/ping", "/health_generate")
            self.answer({} if known else {"detail": "Not Found"}, 200 if known else 404)
        elif self.path in ("/metrics", "/v1/loads", "/get_load"):
            self.answer({}, 404)
        elif self.path == "/server_info" and self.behaviour == "endless-info":
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b"a" * 65536)
        elif self.path == "/server_info":
            info = INFO | json.loads(os.environ.get("FAKE_INFO", "{}"))
            info |= json.loads(os.environ.get("FAKE_VALUES", "{}"))
            if self.behaviour == "speculation-off":
                info["speculative_algorithm"] = None
            self.answer(info)
        else:
            self.answer({})

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        if self.behaviour == "generation-fails":
            self.answer({"error": {"message": "Internal server error"}}, 500)
            return
        Handler.generated += 1
        if self.behaviour == "dies-generating":  # the first real forward needs too much
            say(f"{STAMP} Scheduler hit an exception: Traceback (most recent call last):")
            say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour in ("hangs", "busy") and Handler.generated > 1:
            for _ in range(600):
                if self.behaviour == "busy":
                    say(f"{STAMP} Decode batch, #running-req: 99, #token: 8192, #queue-req: 512")
                time.sleep(0.05)
            return
        with self.asking:
            for worker in self.workers:
                worker.ask()
        try:
            body = json.loads(sent)
        except ValueError:
            body = {}
        found = generated(body)
        if self.behaviour == "speculation-off":
            found["meta_info"] = {"completion_tokens": 32}
        self.answer(found)


def fail_for_memory(fraction: float) -> None:
    """Fail as an engine does whose fraction is outside of FAKE_FRACTIONS (`0.4:0.7`)."""
    low, _, high = os.environ.get("FAKE_FRACTIONS", "0:1").partition(":")
    way = "raise" if fraction < float(low) else "lower" if fraction > float(high) else None
    if way is None:
        return
    say(*START[:3])
    if way == "lower":
        say(START[3], START[4], f"{STAMP} Capture cuda graph begin. This can take up to minutes.")
    say(
        f"{STAMP} Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/site-packages/sglang/srt/managers/scheduler.py", line 4000, in run_scheduler_process',
        "    scheduler = Scheduler(",
        MEMORY_ERRORS[way].format(fraction=fraction),
        "",
        f"{STAMP} Received sigquit from a child process. It usually means the child failed.",
    )
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if sys.argv[1] == "--worker":
        work(sys.argv[2])
        return
    behaviour, port = sys.argv[1], int(sys.argv[2])
    if "FAKE_LOCKS" in os.environ:
        nodes.hold_settings(sys.argv[3])
    if len(sys.argv) > 3:
        fail_for_memory(float(sys.argv[3]))
    if behaviour == "bad-flag":
        say("sglang serve: error: unrecognized arguments: --no-such-flag")
        sys.exit(2)
    if behaviour == "bare-assertion":
        say(
            "Traceback (most recent call last):",
            '  File "site-packages/sglang/srt/arg_groups/speculative_hook.py", line 1162, in f',
            "    assert cfg.speculative_eagle_topk is None",
            "AssertionError",
        )
        sys.exit(1)
    if behaviour == "silent-kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "stuck":
        say(START[0], START[1])
        time.sleep(600)
    if behaviour == "loads-shards":  # slowly, and never comes to an end
        say(START[0], START[1])
        for bar in SHARDS:
            sys.stderr.write(f"\r{bar}")
            sys.stderr.flush()
            time.sleep(0.5)
        time.sleep(600)
    if behaviour == "port-taken":
        say(*START)
        say(
            f"{STAMP} ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 31108): address already in use",
            f"{STAMP} INFO:     Waiting for application shutdown.",
        )
        time.sleep(600)
    if behaviour == "ignores-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if behaviour in ("serve", "ignores-term"):  # children, one in a session of its own
        for own_session in (False, True):
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)"],
                start_new_session=own_session,
            )
    if behaviour == "engine":
        workers = [Worker("scheduler"), Worker("detokenizer")]

        def end(*_: object) -> None:
            if "FAKE_DRAIN_SECONDS" in os.environ:
                time.sleep(float(os.environ["FAKE_DRAIN_SECONDS"]))
                say("Gracefully exiting... Remaining number of requests 0")
            nodes.stop_all()
            for worker in workers:
                worker.process.kill()
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        for worker in workers:
            threading.Thread(target=worker.watch, args=(workers,), daemon=True).start()
        Handler.workers = tuple(workers)
    if os.environ.get("FAKE_NODES", "1").split()[0] != "1":
        behaviour = nodes.join(behaviour, say, float(sys.argv[3]))
    pause = float(os.environ.get("FAKE_START_SECONDS", "0")) / len(START)
    for line in START:
        say(line)
        time.sleep(pause)
    if behaviour == "worker":
        say(f"{STAMP} Dummy health check server started in background thread at 127.0.0.1:{port}")
    say(f"the key is {os.environ.get('FAKE_API_KEY', '')}")
    Handler.behaviour = behaviour
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if behaviour in ("dies-serving", "crashes-serving"):

        def die() -> None:
            time.sleep(float(os.environ.get("FAKE_SERVE_SECONDS", "1.5")))
            say(f"{STAMP} Scheduler hit an exception: Traceback (most recent call last):")
            if behaviour == "dies-serving":
                say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
            else:
                say("RuntimeError: CUDA error: an illegal memory access was encountered")
            os._exit(1)

        threading.Thread(target=die).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
