"""Load generators: SGLang's own, and NVIDIA's aiperf if installed.

aiperf runs once per round. This module uses the command line and record files of aiperf 0.13.0.
`profile_export.jsonl` has the times and the server's token counts of each request.
`profile_export_raw.jsonl` has the answers (`--export-level raw`). `return_spec_tokens_details`
makes the server return a request's acceptance with its answer (SGLang 0.5.23
entrypoints/openai/protocol.py:961, in `sglext`); a release without it reports none. Cached prompt
tokens are not reported; aiperf flushes the cache before each run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import JsonWorker, WorkerError
from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    LaunchError,
    Place,
    children,
    replace_file,
    speclaunch_home,
)
from speclaunch.engine import SGLANG_VERSION, CpuEngine, find_runtime, is_installed
from speclaunch.measure.bench.measurement import MeasuredRequest, Round, request_from
from speclaunch.measure.bench.workload import Prompts


class Generators(StrEnum):
    """Values of `--generator`."""

    AUTO = "auto"
    SGLANG = "sglang"
    AIPERF = "aiperf"


class Measuring(Protocol):
    """Load generator that measures rounds."""

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        """Measure one round. Raises LaunchError."""


class LoadGenerator(Measuring, Protocol):
    """Load generator that measures rounds until it is closed."""

    def close(self) -> None:
        """Stop the generator; safe to repeat."""


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
        `trusted`: True if the user chose the tokenizer, so its code may run. Raises LaunchError if
        the interpreter has no generator.
        """
        self._folder = folder
        self._worker = JsonWorker([python, START], children.safe_path(env), folder)
        try:
            hello = self._worker.ask({"tokenizer": tokenizer, "trusted": trusted}, _LOADING_S)
        except WorkerError as error:
            raise LaunchError(
                f"the load generator of {python} did not start: {error}",
                help=f"run `{python} -m sglang.bench_serving --help` to see what is missing",
            ) from None
        self.has_template = bool(hello.get("template"))
        self._tokenizer = tokenizer

    def lengthened(self, prompts: Prompts) -> Prompts:
        """Return `prompts`, lengthened or cut to `prompts.context` tokens. Raises LaunchError."""
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
        with contextlib.suppress(OSError):
            self._worker.end()


class EnginePython(Struct, frozen=True):
    """A Python interpreter with SGLang, and its environment variables."""

    python: str
    environment: dict[str, str]


def generator_interpreter(engine: str | None) -> EnginePython:
    """Return the interpreter that a launch would use, or the CPU engine's if there is none.

    `engine`: required version, if any. Raises LaunchError if no interpreter has it.
    """
    try:
        runtime = find_runtime(None)
    except LaunchError as error:
        cpu = CpuEngine(speclaunch_home())
        installed = is_installed(cpu)
        if engine in (None, SGLANG_VERSION) and installed:
            return EnginePython(str(cpu.python), _of_cpu(cpu))
        other = "remove --engine" if installed else "run `speclaunch engine install cpu`"
        raise LaunchError(
            f"SGLang's load generator is not available: {error}",
            help=f"activate an environment with sglang (VIRTUAL_ENV or PATH), or {other}",
        ) from None
    if engine not in (None, runtime.sglang):
        raise LaunchError(
            f"the load generator needs SGLang {engine}; {runtime.interpreter} has {runtime.sglang}",
            help="activate an environment with that version, or remove --engine",
        )
    return EnginePython(str(runtime.interpreter), dict(os.environ))


def _of_cpu(cpu: CpuEngine) -> dict[str, str]:
    env = {**os.environ, **cpu.environment(os.environ)}
    if "HF_HUB_OFFLINE" not in os.environ:
        env.pop("HF_HUB_OFFLINE", None)  # the server's model may be on the hub
    return env


_PROGRAM = "aiperf"
_TIMES, _ANSWERS = "profile_export.jsonl", "profile_export_raw.jsonl"
_BEGUN = "request_start_ns"
_OK = 200
_WARM_UP = 2
_SHOWN = 300
_END_SECONDS = 30.0


def find_aiperf() -> Path | None:
    """Return the path of aiperf, or None if it is not on PATH."""
    found = children.find_program(_PROGRAM)
    return Path(found).absolute() if found else None


def require_aiperf() -> Path:
    """Return the path of aiperf. Raises LaunchError if it is not on PATH."""
    found = find_aiperf()
    if found is None:
        raise LaunchError(
            "aiperf is not on PATH",
            help="install it in a separate environment (pip install aiperf) and add its bin "
            "directory to PATH, or use --generator sglang",
        )
    return found


def require_measurable(keys: Sequence[str | None], workloads: Sequence[Prompts]) -> None:
    """Raise InputError for servers or workloads that aiperf cannot measure."""
    place = Place(COMMAND_LINE, text="--generator aiperf")
    if any(keys):
        raise InputError(
            "aiperf would expose the server's key on its command line",
            place,
            "use --generator sglang",
        )
    if any(workload.texts is None for workload in workloads):
        raise InputError(
            "aiperf cannot generate prompts of random tokens",
            place,
            "use another workload, or --generator sglang",
        )


class Aiperf:
    """Load generator that runs aiperf once per round."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        tokenizer: str | None,
        models: Mapping[str, str],
        interpreter: EnginePython | None,
    ) -> None:
        """Set up the generator without starting aiperf.

        `models`: served model name by side. `interpreter`: Python with SGLang, needed for prompts
        of a set length.
        """
        self._program = program
        self._folder = folder
        self._tokenizer = tokenizer
        self._models = models
        self._interpreter = interpreter
        self._texts: dict[str, tuple[str, ...]] = {}

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        texts = self._prompts(load.prompts)
        warm = max(_WARM_UP, load.concurrency)
        chosen = random.Random(load.seed).sample(texts, load.requests)  # noqa: S311  no secret
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="aiperf-") as name:
            folder = Path(name)
            file = folder / "prompts.jsonl"
            first = [f"Warm-up {n}. {texts[n % len(texts)]}" for n in range(warm)]
            lines = [json.dumps({"text": text}) for text in (*first, *chosen)]
            replace_file(file, "\n".join(lines) + "\n")
            self._run(self._words(load, folder, file, warm), folder, seconds)
            try:
                pairs = list(_measured(folder))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise LaunchError(
                    f"{self._program} did not write records in aiperf 0.13's format: {error!r}"
                ) from None
        return Round(
            load.side,
            load.prompts.name,
            load.concurrency,
            load.number,
            _seconds(pairs),
            tuple(_request(times, answer, load.prompts.output_tokens) for times, answer in pairs),
            load.prompts.context,
        )

    def close(self) -> None:
        """Do nothing: aiperf does not run between rounds."""

    def _words(self, load: RoundLoad, folder: Path, file: Path, warm: int) -> list[str]:
        extra = {
            "max_tokens": load.prompts.output_tokens,
            "temperature": 0,
            "ignore_eos": "true",
            "return_spec_tokens_details": "true",
        }
        endpoint = "chat" if has_template(self._tokenizer) else "completions"
        return [
            *("profile", "--url", load.url, "--model", self._models[load.side]),
            *("--endpoint-type", endpoint, "--streaming", "--use-server-token-count"),
            *(("--tokenizer", self._tokenizer) if self._tokenizer else ()),
            *("--input-file", str(file), "--custom-dataset-type", "single_turn"),
            *("--dataset-sampling-strategy", "sequential"),
            *("--concurrency", str(load.concurrency), "--request-count", str(load.requests)),
            *("--warmup-request-count", str(warm), "--random-seed", str(load.seed)),
            *(word for n, v in extra.items() for word in ("--extra-inputs", f"{n}:{v}")),
            *("--reset-kv-cache", "--reset-kv-cache-path", "/flush_cache"),
            *("--artifact-dir", str(folder), "--export-level", "raw", "--ui", "none"),
            *("--no-gpu-telemetry", "--no-server-metrics"),
        ]

    def _run(self, words: Sequence[str], folder: Path, seconds: float) -> None:
        log = self._folder / "aiperf.log"
        with log.open("wb") as out:
            process = children.start(
                children.bound([self._program, *words]),
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(self._tokenizer),
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                message = f"aiperf did not finish within {seconds:.0f} s"
                raise LaunchError(message, help=f"see {log}") from None
            finally:
                _end(process)
        if not (folder / _TIMES).exists():  # aiperf also fails when every request failed
            raise LaunchError(f"aiperf failed (exit code {code}): {_why(log)}", help=f"see {log}")

    def _prompts(self, prompts: Prompts) -> tuple[str, ...]:
        if prompts.file_name not in self._texts:
            self._texts[prompts.file_name] = tuple(dict.fromkeys(self._lengthened(prompts)))
        return self._texts[prompts.file_name]

    def _lengthened(self, prompts: Prompts) -> tuple[str, ...]:
        if not prompts.context:
            return prompts.texts or ()
        own = self._interpreter
        if own is None:
            raise LaunchError(
                "--context needs the model's tokenizer and SGLang; no environment has both",
                help="remove --context, or activate an environment that has both",
            )
        generator = SglangGenerator(
            own.python, own.environment, self._folder, self._tokenizer, trusted=False
        )
        try:
            return generator.lengthened(prompts).texts or ()
        finally:
            generator.close()


def has_template(tokenizer: str | None) -> bool:
    """True if the tokenizer has a chat template, or is not local. Prompts are then sent as chats.

    transformers stores the template in the tokenizer config or in a file next to it.
    """
    folder = Path(tokenizer) if tokenizer else None
    if folder is None or not folder.is_dir():
        return True
    if any(folder.glob("chat_template.*")):
        return True
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads((folder / "tokenizer_config.json").read_bytes())
        return isinstance(found, dict) and found.get("chat_template") is not None
    return False


def _environment(tokenizer: str | None) -> dict[str, str]:
    """Return the environment for aiperf.

    HF_HUB_OFFLINE is removed for a local tokenizer: with it set, aiperf looks the folder up in the
    hub cache.
    """
    env = dict(os.environ)
    if tokenizer and Path(tokenizer).is_dir():
        env.pop("HF_HUB_OFFLINE", None)
    return env


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop the process and its group, even if the process has already ended."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _why(log: Path) -> str:
    """Return the log's first error, or without one its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    errors = [line.partition(" ERROR ")[2].strip() for line in lines if " ERROR " in line]
    return (errors[:1] or [line for line in lines if line][-1:] or ["no output"])[0][:_SHOWN]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a file's request records, excluding warm-up."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            found = json.loads(line)
            if isinstance(found, dict) and found["metadata"].get("benchmark_phase") == "profiling":
                yield found


def _measured(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each measured request's times and answer, in start order.

    A failed request may have an empty answer.
    """
    answers = {answer["metadata"]["x_request_id"]: answer for answer in _lines(folder / _ANSWERS)}
    for times in sorted(_lines(folder / _TIMES), key=lambda entry: entry["metadata"][_BEGUN]):
        yield times, answers.get(times["metadata"]["x_request_id"], {})


def _seconds(measured: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> float:
    """Return the seconds from the start of the first request to the end of the last."""
    about = [times["metadata"] for times, _ in measured]
    ends = [entry.get("request_end_ns") or entry[_BEGUN] for entry in about]
    return (max(ends) - min(entry[_BEGUN] for entry in about)) / 1e9 if about else 0.0


def _request(
    times: Mapping[str, Any], answer: Mapping[str, Any], requested: int
) -> MeasuredRequest:
    metrics = {
        n: metric["value"]
        for n, metric in (times.get("metrics") or {}).items()
        if "value" in metric
    }
    error = times.get("error") or answer.get("error")
    failed = bool(error) or times["metadata"].get("was_cancelled") or answer.get("status") != _OK
    meta: dict[str, Any] = {
        "completion_tokens": _integer(metrics.get("usage_completion_tokens")),
        "prompt_tokens": _integer(metrics.get("usage_prompt_tokens")),
    }
    characters = 0
    for chunk in _chunks(answer):
        details = (chunk.get("sglext") or {}).get("spec_tokens_details")
        meta.update(details[0] if isinstance(details, list) and details else details or {})
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or choice
            texts = (delta.get("text"), delta.get("content"), delta.get("reasoning_content"))
            characters += sum(len(text) for text in texts if isinstance(text, str))
    return request_from(
        {
            "success": not failed,
            "error": _message(error) or f"status {answer.get('status')}",
            "latency": metrics.get("request_latency", 0.0) / 1000,
            "ttft": metrics.get("time_to_first_token", 0.0) / 1000,
            "asked": requested,
            "characters": characters,
            "meta": meta,
        }
    )


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _message(error: object) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error.get("type") or "")
    return str(error or "")


def _chunks(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for response in answer.get("responses") or ():
        for packet in response.get("packets") or ():
            with contextlib.suppress(ValueError, TypeError):
                found = json.loads(packet.get("value"))
                if isinstance(found, dict):
                    yield found
