"""The engine's own load generator, as a process that runs rounds on request."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import JsonWorker, WorkerError
from speclaunch.core import LaunchError, children, replace_file, speclaunch_home
from speclaunch.engine import SGLANG_VERSION, CpuEngine, find_runtime, is_installed
from speclaunch.measure.bench.measurement import Round, request_from
from speclaunch.measure.bench.workload import Prompts

START = Path(__file__).with_name("worker") / "generate.py"
_LOADING_S = 300.0


class RoundLoad(Struct, frozen=True):
    """Parameters of one round."""

    side: str
    url: str
    prompts: Prompts
    concurrency: int
    requests: int
    number: int
    seed: int
    key: str | None = None
    """API key of the server."""


class SglangGenerator:
    """Load generator that runs all rounds of a comparison in the engine's interpreter."""

    def __init__(
        self,
        python: str,
        env: Mapping[str, str],
        folder: Path,
        tokenizer: str | None,
        *,
        trusted: bool = True,
    ) -> None:
        """Start the worker process.

        `tokenizer`: path or name of the model's tokenizer; its chat template, if any, is applied.
        `trusted`: the user chose the tokenizer, so its code may run. Raises LaunchError if the
        interpreter has no generator.
        """
        self._folder = folder
        self._worker = JsonWorker([python, START], children.safe_path(env), folder)
        try:
            hello = self._worker.ask({"tokenizer": tokenizer, "trusted": trusted}, _LOADING_S)
        except WorkerError as error:
            raise LaunchError(
                f"the load generator of {python} did not start: {error}",
                help="run `python -m sglang.bench_serving --help` there to see what is missing",
            ) from None
        self.has_template = bool(hello.get("template"))
        self._tokenizer = tokenizer

    def lengthened(self, prompts: Prompts) -> Prompts:
        """Return the prompts at their requested token count; cached. Raises LaunchError."""
        if not prompts.context or prompts.texts is None:
            return prompts
        path = self._folder / f"{prompts.file_name}.prompts"
        if not path.exists():
            begun = path.with_suffix(".begun")
            replace_file(begun, json.dumps(prompts.texts))
            self._ask({"lengthen": {"file": str(begun), "tokens": prompts.context}}, _LOADING_S)
            begun.replace(path)
        return replace(prompts, texts=tuple(json.loads(path.read_text(encoding="utf-8"))))

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        """Measure one round. Raises LaunchError if the generator fails."""
        prompts = self.lengthened(load.prompts)
        words = [
            *("--backend", "sglang", "--base-url", load.url, "--disable-tqdm", "--flush-cache"),
            *("--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency)),
            *("--seed", str(load.seed), *prompts.words(self._folder)),
        ]
        if self._tokenizer is not None:
            words += ["--tokenizer", self._tokenizer]
        if self.has_template and prompts.texts is not None:
            words.append("--apply-chat-template")
        answer = self._ask({"words": words, "key": load.key}, seconds)
        return Round(
            load.side,
            prompts.name,
            load.concurrency,
            load.number,
            float(answer["seconds"]),
            tuple(map(request_from, answer["requests"])),
            prompts.context,
        )

    def _ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        try:
            answer = self._worker.ask(question, seconds)
        except WorkerError as error:
            raise LaunchError(f"the load generator failed: {error}") from None
        if "error" in answer:
            raise LaunchError(f"the load generator failed: {answer['error']}")
        return answer

    def close(self) -> None:
        """Stop the worker; safe to repeat."""
        with contextlib.suppress(OSError):
            self._worker.end()


class EnginePython(Struct, frozen=True):
    """A Python with SGLang, and its environment variables."""

    python: str
    environment: dict[str, str]


def generator_interpreter(engine: str | None) -> EnginePython:
    """Return the interpreter that a launch would use, else the CPU engine's.

    `engine`: required version. Raises LaunchError if there is none.
    """
    try:
        runtime = find_runtime(None)
    except LaunchError as error:
        cpu = CpuEngine(speclaunch_home())
        installed = is_installed(cpu)
        if engine in (None, SGLANG_VERSION) and installed:
            return EnginePython(str(cpu.python), _of_cpu(cpu))
        other = "remove --engine" if installed else "`speclaunch engine install cpu`"
        raise LaunchError(
            f"SGLang's load generator is not available: {error}",
            help=f"activate any environment with sglang (VIRTUAL_ENV or PATH), or {other}",
        ) from None
    if engine not in (None, runtime.sglang):
        raise LaunchError(
            f"the load generator needs SGLang {engine}; {runtime.interpreter} has {runtime.sglang}",
            help="activate the environment with that version, or remove --engine",
        )
    return EnginePython(str(runtime.interpreter), dict(os.environ))


def _of_cpu(cpu: CpuEngine) -> dict[str, str]:
    env = {**os.environ, **cpu.environment(os.environ)}
    if "HF_HUB_OFFLINE" not in os.environ:
        env.pop("HF_HUB_OFFLINE", None)  # the server's model may be on the hub
    return env
