"""The engine's own load generator, as a process that is asked for rounds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch import children
from speclaunch.bench.measurement import Request, Round, request_from
from speclaunch.bench.workload import Prompts
from speclaunch.errors import LaunchError
from speclaunch.judge.process import JsonWorker, WorkerError
from speclaunch.launch.atomic_files import write_private
from speclaunch.record import record

START = Path(__file__).with_name("worker") / "generate.py"
_LOADING_S = 300.0


@record
class Load:
    """One round to be measured."""

    side: str
    url: str
    prompts: Prompts
    concurrency: int
    requests: int
    number: int
    seed: int
    key: str | None = None
    """What the server asks for."""


class Generator:
    """Runs in the engine's interpreter, for all rounds of a comparison."""

    def __init__(
        self,
        python: str,
        env: Mapping[str, str],
        folder: Path,
        tokenizer: str | None,
        *,
        trusted: bool = True,
    ) -> None:
        """`tokenizer`: of the model, whose chat template the prompts get where it has one.
        `trusted`: the user chose it, so that code which it brings may run. Raises LaunchError
        where that interpreter has no generator."""
        self._folder = folder
        self._worker = JsonWorker([python, START], children.safe_path(env), folder)
        try:
            hello = self._worker.ask({"tokenizer": tokenizer, "trusted": trusted}, _LOADING_S)
        except WorkerError as error:
            raise LaunchError(
                f"the load generator of {python} does not start: {error}",
                help="it is a part of SGLang: python -m sglang.bench_serving --help shows what is "
                "missing",
            ) from None
        self.has_template = bool(hello.get("template"))
        self._tokenizer = tokenizer

    def lengthened(self, prompts: Prompts) -> Prompts:
        """The prompts with as many tokens as they are to have; made once. Raises LaunchError."""
        if not prompts.context or prompts.texts is None:
            return prompts
        path = self._folder / f"{prompts.file_name}.prompts"
        if not path.exists():
            begun = path.with_suffix(".begun")
            write_private(begun, json.dumps(prompts.texts))
            self._ask({"lengthen": {"file": str(begun), "tokens": prompts.context}}, _LOADING_S)
            begun.replace(path)
        return replace(prompts, texts=tuple(json.loads(path.read_text(encoding="utf-8"))))

    def measure(self, load: Load, seconds: float) -> Round:
        """One round. Raises LaunchError where the generator fails."""
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
        said = self._ask({"words": words, "key": load.key}, seconds)
        return Round(
            load.side,
            prompts.name,
            load.concurrency,
            load.number,
            float(said["seconds"]),
            tuple(_requests(said)),
            prompts.context,
        )

    def _ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        try:
            said = self._worker.ask(question, seconds)
        except WorkerError as error:
            raise LaunchError(f"the load generator failed: {error}") from None
        if "error" in said:
            raise LaunchError(f"the load generator failed: {said['error']}")
        return said

    def close(self) -> None:
        """End it; safe to repeat."""
        with contextlib.suppress(OSError):
            self._worker.end()


def _requests(said: Mapping[str, Any]) -> list[Request]:
    return [request_from(one) for one in said["requests"]]
