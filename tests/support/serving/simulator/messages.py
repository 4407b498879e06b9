"""What the engine prints, word for word, by version (the released sources and torch)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from packaging.version import Version

from speclaunch.engine.plan.plan import Plan

GIB = 1 << 30
STAMP = "[2026-11-21 09:00:00]"
DEATH = (f"{STAMP} Received sigquit from a child process. It usually means the child failed.",)
_SOLUTIONS = """Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs{} to a smaller value (e.g., 16)
3. disable {}
Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose """


def out_of_memory(asked: int, free: int, total: int) -> str:
    """torch's own text (c10/cuda/CUDACachingAllocator.cpp)."""
    piece = min(asked, max(2 << 20, asked // 8))
    return (
        f"CUDA out of memory. Tried to allocate {_size(max(piece, free + 1))}. GPU 0 has a total "
        f"capacity of {total / GIB:.2f} GiB of which {_size(free)} is free. Including non-PyTorch "
        f"memory, this process has {(total - free) / GIB:.2f} GiB memory in use."
    )


def _size(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / (1 << 20):.2f} MiB"


def capture_failed(version: str) -> str:
    """What a failed capture says around the error."""
    new = Version(version) >= Version("0.5.14")
    third = (
        "decode CUDA graph by --cuda-graph-backend-decode=disabled. "
        if new
        else (
            "torch compile by not using --enable-torch-compile\n4. disable CUDA graph by "
            "--disable-cuda-graph. "
        )
    )
    solutions = _SOLUTIONS.format(
        "-decode" if new else "", third + "(Not recommended. Huge performance loss)"
    )
    return "Capture cuda graph failed: {}\n" + solutions


def failed(text: str, wrap: str | None = None) -> list[str]:
    """A scheduler that died of an error."""
    if wrap is not None:
        error = f"Exception: {wrap.format(text)}"
    elif text.startswith("CUDA out of memory"):
        error = f"torch.OutOfMemoryError: {text}"
    elif text.startswith("Loaded weights"):
        error = f"ValueError: {text}"
    else:
        error = f"RuntimeError: {text}"
    return [
        f"{STAMP} Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/sgl/sglang/srt/managers/scheduler.py", line 3620, in run_scheduler_process',
        "    scheduler = Scheduler(",
        *error.split("\n"),
        "",
    ]


def not_enough(version: str, fraction: float) -> str:
    text = "Not enough memory. Please try to increase --mem-fraction-static."
    held = Version(version)
    if held >= Version("0.5.10"):
        return f"{text} Current value: mem_fraction_static={fraction}"
    if held >= Version("0.5.3"):
        return f"{text} Current value: self.server_args.mem_fraction_static={fraction}"
    return text


def nothing_left(fraction: float, before: int, after: int) -> str:
    least = 1 - after / before
    return (
        f"Loaded weights leave no GPU memory for the KV cache under "
        f"--mem-fraction-static={fraction}. Raise --mem-fraction-static above "
        f"{math.ceil(least * 1000) / 1000:.3f} (minimum viable = 1 - available/pre = {least:.4f}). "
        f"If using speculative decoding, draft weights are now counted."
    )


def retracted(version: str) -> str:
    held = Version(version)
    if held < Version("0.5.7"):
        return "Failed to retract any request. No space left for only one request."
    return "Out of memory even after retracting all other requests in the decode batch"


@dataclass
class Said:
    """The log so far."""

    version: str
    lines: list[str] = field(default_factory=list)

    def since(self, version: str) -> bool:
        return Version(self.version) >= Version(version)

    def add(self, text: str) -> None:
        self.lines.append(f"{STAMP} {text}")

    def arguments(self, plan: Plan) -> None:
        self.add(
            f"server_args=ServerArgs(model_path='{plan.value('model_path')}', "
            f"mem_fraction_static={plan.value('mem_fraction_static')}, "
            f"max_running_requests={plan.value('max_running_requests')})"
        )

    def load_begin(self, free: int) -> None:
        self.add(f"Load weight begin. avail mem={free / GIB:.2f} GB")

    def load_end(self, kind: str, before: int, after: int) -> None:
        elapsed = "elapsed=3.21 s, " if self.since("0.5.9") else ""
        self.add(
            f"Load weight end. {elapsed}type={kind}, dtype=torch.bfloat16, "
            f"avail mem={after / GIB:.2f} GB, mem usage={(before - after) / GIB:.2f} GB."
        )

    def pool(self, tokens: int, size: int) -> None:
        dtype = "dtype: torch.bfloat16, " if self.since("0.5.13") else ""
        half = size / 2 / GIB
        self.add(
            f"KV Cache is allocated. {dtype}#tokens: {tokens}, K size: {half:.2f} GB, "
            f"V size: {half:.2f} GB"
        )

    def pool_end(self, free: int) -> None:
        self.add(f"Memory pool end. avail mem={free / GIB:.2f} GB")

    def capture_begin(self, role: str, sizes: tuple[int, ...], free: int) -> None:
        if not self.since("0.5.14"):
            what = "" if role == "target" else "draft "
            self.add(
                f"Capture {what}cuda graph begin. This can take up to several minutes. "
                f"avail mem={free / GIB:.2f} GB"
            )
            return
        name = "target verify" if role == "target" else "draft decode"
        self.add(
            f"Capture {name} CUDA graph begin. backend=full, num_tokens_per_req=4, "
            f"avail mem={free / GIB:.2f} GB"
        )

    def capture_end(self, role: str, sizes: tuple[int, ...], before: int, after: int) -> None:
        used, left = (before - after) / GIB, after / GIB
        if not self.since("0.5.14"):
            what = "" if role == "target" else "draft "
            self.add(
                f"Capture {what}cuda graph end. Time elapsed: 9.87 s. mem usage={used:.2f} GB. "
                f"avail mem={left:.2f} GB."
            )
            return
        name = "target verify" if role == "target" else "draft decode"
        self.add(
            f"Capture {name} CUDA graph end. bs={list(sizes)}, elapsed=9.87 s, "
            f"mem usage={used:.2f} GB, avail mem={left:.2f} GB."
        )

    def summary(self, plan: Plan, tokens: int, running: int, free: int) -> None:
        self.add(
            f"max_total_num_tokens={tokens}, chunked_prefill_size="
            f"{plan.value('chunked_prefill_size')}, max_prefill_tokens=16384, "
            f"max_running_requests={running}, context_len=8192, "
            f"available_gpu_mem={free / GIB:.2f} GB"
        )

    def ready(self) -> None:
        self.add("INFO:     Application startup complete.")
        self.add("The server is fired up and ready to roll!")
