"""Logs of engines that fail, put together from the exact texts of one release.

The texts are those of the wheels 0.4.6.post5 to 0.5.23, and the wording of torch, NCCL and argparse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from packaging.version import Version

PACKAGE = "/usr/local/lib/python3.12/dist-packages/sglang/srt"
OOM = (
    "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 812.88 MiB is free. Process 4711 has 78.29 GiB memory in use. Of the allocated memory "
    "76.02 GiB is allocated by PyTorch, and 412.11 MiB is reserved by PyTorch but unallocated."
)
ADVICE_OLD = """\
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs to a smaller value (e.g., 16)
3. disable torch compile by not using --enable-torch-compile
4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \
"""
ADVICE_NEW = """\
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)
3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge \
performance loss)
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \
"""


@dataclass
class Log:
    """A log in the making, of one release."""

    version: str
    ranks: tuple[str, ...] = ("",)
    lines: list[str] = field(default_factory=list)
    second: int = 0

    def since(self, version: str) -> bool:
        """Whether this release is `version` or later."""
        return Version(self.version) >= Version(version)

    def say(self, text: str, rank: str = "") -> Log:
        """A line with the engine's header."""
        self.second += 1
        stamp = f"2026-03-04 10:{self.second // 60 % 60:02}:{self.second % 60:02}"
        self.lines.append(f"[{stamp}{' ' + rank if rank else ''}] {text}")
        return self

    def all(self, text: str) -> Log:
        """The same of every rank."""
        for rank in self.ranks:
            self.say(text, rank)
        return self

    def raw(self, *texts: str) -> Log:
        """Lines without a header."""
        self.lines += texts
        return self

    # milestones, in the words of the release

    def arguments(self, **given: object) -> Log:
        """`server_args=…`: a few of the fields that every release of the line has."""
        graphs = "cuda_graph_max_bs_decode" if self.since("0.5.14") else "cuda_graph_max_bs"
        fields: dict[str, object] = {
            "model_path": "/models/target", "trust_remote_code": False, "context_length": 8192,
            "host": "127.0.0.1", "port": 30000, "mem_fraction_static": 0.83,
            "max_running_requests": 48, "max_total_tokens": None, "chunked_prefill_size": 8192,
            "device": "cuda", "tp_size": len(self.ranks), graphs: 48,
            "speculative_algorithm": "EAGLE3", "speculative_num_steps": 3,
            "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4,
        }  # fmt: skip
        fields |= given
        if self.since("0.5.19"):
            shown = "{" + ", ".join(f"'{k}': {v!r}" for k, v in fields.items()) + "}"
        else:
            shown = "ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in fields.items()) + ")"
        return self.say(f"server_args={shown}")

    def baseline(self) -> Log:
        """The end of the distributed initialisation."""
        if self.since("0.5.21"):
            return self.all("Memory baseline taken. mem usage=0.62 GB")
        elapsed = "elapsed=1.21 s, " if self.since("0.5.9") else ""
        return self.all(f"Init torch distributed ends. {elapsed}mem usage=0.62 GB")

    def load_begin(self, free: float = 78.4) -> Log:
        """Weights begin to load."""
        return self.all(f"Load weight begin. avail mem={free:.2f} GB")

    def load_end(self, name: str = "LlamaForCausalLM", free: float = 63.4, rank: str = "") -> Log:
        """Weights are loaded."""
        elapsed = "elapsed=9.81 s, " if self.since("0.5.9") else ""
        dtype = "" if self.since("0.5.9") else "dtype=torch.bfloat16, "
        text = f"Load weight end. {elapsed}type={name}, {dtype}avail mem={free:.2f} GB, "
        text += "mem usage=14.98 GB."
        return self.say(text, rank) if rank else self.all(text)

    def pool(self, tokens: int = 301_234, free: float = 12.9) -> Log:
        """The KV pool is there."""
        dtype = "dtype: torch.bfloat16, " if self.since("0.5.13") else ""
        self.all(
            f"KV Cache is allocated. {dtype}#tokens: {tokens}, K size: 18.39 GB, V size: 18.39 GB"
        )
        return self.all(f"Memory pool end. avail mem={free:.2f} GB")

    def capture_begin(self, draft: bool = False) -> Log:
        """Graphs begin to be captured."""
        if self.since("0.5.14"):
            what = "draft decode" if draft else "target verify"
            return self.all(
                f"Capture {what} CUDA graph begin. backend=full, num_tokens_per_req=4, "
                "avail mem=12.71 GB"
            )
        what = "draft cuda" if draft else "cuda"
        return self.all(
            f"Capture {what} graph begin. This can take up to several minutes. avail mem=12.71 GB"
        )

    def capture_end(self, draft: bool = False) -> Log:
        """Graphs are captured."""
        if self.since("0.5.14"):
            what = "draft decode" if draft else "target verify"
            return self.all(
                f"Capture {what} CUDA graph end. bs=[1, 2, 4, 8], elapsed=9.31 s, "
                "mem usage=1.10 GB, avail mem=11.61 GB."
            )
        what = "draft cuda" if draft else "cuda"
        return self.all(
            f"Capture {what} graph end. Time elapsed: 9.31 s. mem usage=1.10 GB. "
            "avail mem=11.61 GB."
        )

    def weights(self) -> Log:
        """Up to where the pool would come: the draft's weights too, where they come first."""
        self.load_begin().load_end()
        if self.since("0.5.14"):
            self.load_begin(63.4).load_end("LlamaForCausalLMEagle3", 62.9)
        return self

    def captured(self) -> Log:
        """Up to the end of all captures."""
        self.weights().pool().capture_begin().capture_end()
        if not self.since("0.5.14"):
            self.load_begin(11.6).load_end("LlamaForCausalLMEagle3", 11.0).pool(free=9.8)
        return self.capture_begin(draft=True).capture_end(draft=True)

    def summary(self) -> Log:
        """The scheduler is ready."""
        return self.all(
            "max_total_num_tokens=301234, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=48, context_len=8192, available_gpu_mem=9.11 GB"
        )

    def serving(self) -> Log:
        """The server is ready."""
        self.captured().summary()
        self.say("INFO:     Started server process [4711]")
        self.say("INFO:     Application startup complete.")
        self.say("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)")
        self.batch()
        self.say('INFO:     127.0.0.1:40404 - "POST /generate HTTP/1.1" 200 OK')
        return self.say("The server is fired up and ready to roll!")

    def batch(self) -> Log:
        """A batch of prefill and one of decode."""
        point = "," if self.since("0.5.4") else "."
        first = self.ranks[0]
        self.say(f"Prefill batch{point} #new-seq: 1, #new-token: 27, #running-req: 0", first)
        return self.say(f"Decode batch{point} #running-req: 7, #token: 941, accept len: 2.9", first)

    # ends

    def crash(self, error: str, *frames: tuple[str, str, str], rank: str = "") -> Log:
        """The scheduler's last words, and its parent's."""
        self.say("Scheduler hit an exception: Traceback (most recent call last):", rank)
        self.frames(("managers/scheduler.py", "run_scheduler_process", "scheduler = f()"), *frames)
        self.raw(*error.split("\n"), "")
        return self.sigquit()

    def frames(self, *frames: tuple[str, str, str]) -> Log:
        """Frames of a traceback: file, function, code."""
        for number, (file, function, code) in enumerate(frames, 101):
            self.raw(f'  File "{PACKAGE}/{file}", line {number}, in {function}', f"    {code}")
        return self

    def sigquit(self) -> Log:
        """The parent sees a child's signal."""
        self.say("Received sigquit from a child process. It usually means the child failed.")
        if self.since("0.5.9"):
            self.say("kill_process_tree called: parent_pid=4711, include_parent=True, pid=4711")
        return self

    def traceback(self, error: str, *frames: tuple[str, str, str]) -> Log:
        """An exception of the main process."""
        self.raw("Traceback (most recent call last):", '  File "<frozen runpy>", line 198, in _run')
        return self.frames(*frames).raw(*error.split("\n"))


FRAME_LOAD = ("model_executor/model_runner.py", "load_model", "self.model = get_model(")
FRAME_POOL = ("mem_cache/memory_pool.py", "_create_buffers", "torch.zeros(")
FRAME_CAPTURE = ("model_executor/cuda_graph_runner.py", "capture", "run_once()")
FRAME_FORWARD = ("managers/scheduler.py", "event_loop_overlap", "self.run_batch(batch)")
FRAME_MLP = ("layers/linear.py", "forward", "output = F.linear(x, weight)")
FRAME_ARGS_OLD = ("server_args.py", "__post_init__", "self._handle_speculative_decoding()")
FRAME_ARGS_NEW = ("arg_groups/speculative_hook.py", "_handle_eagle_family", "assert (")
OUT = f"torch.OutOfMemoryError: {OOM}"
OUT_OLD = f"torch.cuda.OutOfMemoryError: {OOM}"
