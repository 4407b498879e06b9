# ruff: noqa: PLC0415 (SGLang is imported only when everything is prepared)
"""Ask one SGLang release what it sets by the memory of a GPU, as if this machine had that GPU.

Run by the engine's interpreter, in the directory that holds `models/`. Standard input is one JSON
document, `{"gpus": {name: [MiB, capability]}, "tp": […], "algorithms": […]}`; each line of
standard output is what the engine set for one of their combinations.

The release's own resolution runs up to the end of its memory step (`handle_gpu_memory_settings`)
and no further: what follows it (drafts, attention backends) is not asked, so that an algorithm
stands for what the memory step makes of its name. How the GPU is pretended:
speclaunch/checks/engine_check/worker/pretend.py.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "speclaunch" / "checks" / "engine_check")
)

from worker.pretend import import_all, prepare, pretend
from worker.verdict import resolved

MODEL = "models/llama"
HOOK = "sglang.srt.arg_groups.memory_hook"
"""Where the step is from 0.5.19 on; before, it is a method."""


def name_kernels() -> None:
    """Let modules import kernels that the CPU build of sgl_kernel has not: none is called."""
    kernels: Any = importlib.import_module("sgl_kernel")
    kernels.__getattr__ = lambda _name: _no_kernel


def _no_kernel(*_: Any, **__: Any) -> None:
    raise NotImplementedError("a kernel was called")


class StopHereError(Exception):
    """The memory step is done."""


def stopping(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step, and not one more."""

    def run(*args: Any, **kwargs: Any) -> None:
        step(*args, **kwargs)
        raise StopHereError(args[0])  # the record that it is about

    return run


def stop_after_memory() -> None:
    """End the resolution there, in whichever way this release has the step."""
    from sglang.srt import server_args as module

    method = "_handle_gpu_memory_settings"
    if hasattr(module.ServerArgs, method):
        setattr(module.ServerArgs, method, stopping(getattr(module.ServerArgs, method)))
        return
    hook = importlib.import_module(HOOK)
    hook.handle_gpu_memory_settings = stopping(hook.handle_gpu_memory_settings)


def values(tp: int, algorithm: str | None) -> dict[str, Any]:
    """What is set, for one combination on the pretended GPU."""
    from sglang.srt import server_args as module

    try:
        args = module.ServerArgs(  # up to 0.5.18 this resolves it, too
            model_path=MODEL, device="cuda", tp_size=tp, speculative_algorithm=algorithm
        )
        args.resolve_once()
    except StopHereError as stop:
        return shown(stop.args[0])
    raise RuntimeError("the resolution ended without a memory step")


def shown(args: Any) -> dict[str, Any]:
    """The fields of the step, by the names that all releases share here."""
    found = resolved(args)
    compiled = vars(args).get("enable_piecewise_cuda_graph")
    if "disable_piecewise_cuda_graph" in found:
        compiled = not found["disable_piecewise_cuda_graph"]
    return {
        "chunked_prefill_size": found["chunked_prefill_size"],
        "max_bs": found.get("cuda_graph_max_bs_decode") or found.get("cuda_graph_max_bs"),
        "bs": found.get("cuda_graph_bs_decode") or found.get("cuda_graph_bs"),
        "prefill": found.get("cuda_graph_backend_prefill", compiled),
        "prefill_bs": found.get("cuda_graph_bs_prefill")
        or found.get("piecewise_cuda_graph_tokens"),
        "mem_fraction_static": found["mem_fraction_static"],
    }


def answers(document: dict[str, Any]) -> Iterator[str]:
    """A line for each combination, from a child for each GPU."""
    for name, (memory, capability) in document["gpus"].items():
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            told = {"name": name, "device": "cuda", "count": 8, "capability": capability}
            with os.fdopen(write, "w") as pipe:
                try:
                    pretend({**told, "memory_mib": memory})
                    stop_after_memory()
                    for tp, algorithm in product(document["tp"], document["algorithms"]):
                        cell = {"gpu": name, "tp": tp, "algorithm": algorithm}
                        pipe.write(json.dumps(cell | isolated(tp, algorithm)) + "\n")
                except BaseException:
                    pipe.write(json.dumps({"failed": traceback.format_exc()[-1500:]}) + "\n")
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            yield from pipe.read().splitlines()
        os.waitpid(child, 0)


def isolated(tp: int, algorithm: str | None) -> dict[str, Any]:
    """`values` without what the release leaves in the environment."""
    before = dict(os.environ)
    try:
        return values(tp, algorithm)
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Read the document, print what is set."""
    document = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr
    logging.basicConfig(level=logging.ERROR)
    prepare()
    name_kernels()
    import_all()
    version = importlib.import_module("sglang.version").__version__
    print(json.dumps({"sglang": version}), file=out, flush=True)
    for line in answers(document):
        print(line, file=out, flush=True)


if __name__ == "__main__":
    main()
