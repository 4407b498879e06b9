"""A scripted stand-in for the engine, for faults and speed only: never a user's default.

Prints texts that the real SGLang 0.5.23 prints (recorded on the CPU engine), and answers the three
requests that speclaunch makes. Run as `fake_engine.py BEHAVIOUR PORT`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
INFO = {
    "model_path": "models/cycle",
    "speculative_algorithm": "NGRAM",
    "speculative_num_draft_tokens": 8,
    "max_running_requests": 4,
}
META = {"completion_tokens": 32, "spec_verify_ct": 10, "spec_accept_length": 3.2}


def say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


class Handler(BaseHTTPRequestHandler):
    behaviour = "serve"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/server_info":
            info = dict(INFO)
            if self.behaviour == "speculation-off":
                info["speculative_algorithm"] = None
            self.answer(info)
        else:
            self.answer({})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.behaviour == "generation-fails":
            self.answer({"error": {"message": "Internal server error"}}, 500)
            return
        meta = dict(META)
        if self.behaviour == "speculation-off":
            meta = {"completion_tokens": 32}
        self.answer({"text": "again and again", "meta_info": meta})


def main() -> None:
    behaviour, port = sys.argv[1], int(sys.argv[2])
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
    say(*START)
    say(f"the key is {os.environ.get('FAKE_API_KEY', '')}")
    Handler.behaviour = behaviour
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if behaviour == "dies-serving":
        import threading

        def die() -> None:
            time.sleep(1.5)
            say(f"{STAMP} Scheduler hit an exception: Traceback (most recent call last):")
            say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
            os._exit(1)

        threading.Thread(target=die).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
