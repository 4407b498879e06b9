"""How the watchdog asks an engine, and how it tells a process of it that was stopped."""

from __future__ import annotations

import re

import psutil

from speclaunch.launch.address import Address
from speclaunch.launch.client import Answer, EngineClient, EngineError, EngineSilentError
from speclaunch.launch.watchdog import ProbeAnswer

_COUNTERS = re.compile(r"^sglang:(?:realtime|generation|prompt)_tokens_total\b.*$", re.MULTILINE)
"""Of `/metrics` (with `--enable-metrics`): observability/metrics_collector.py. Others of its
values change with the time alone."""

_OF_TIME = ("time", "seconds", "throughput")
_PROMPT = [10, 11, 12, 13]
_OK, _NOT_FOUND, _TOO_MANY, _UNAVAILABLE, _SERVER_ERROR = 200, 404, 429, 503, 500


class EngineProbe:
    """Asks one engine over HTTP. No method raises what a network can raise."""

    def __init__(self, address: Address) -> None:
        self._client = EngineClient(address)
        self._paths = ["/metrics", "/v1/loads", "/get_load"]

    def generate(self, timeout: float) -> ProbeAnswer:
        """Ask for one token, by token ids: an engine without tokenizer takes them too."""
        body = {
            "input_ids": _PROMPT,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        }
        try:
            answer = self._client.post("/generate", body, timeout)
        except EngineSilentError:
            return ProbeAnswer.SILENT
        except EngineError:
            return ProbeAnswer.FAILED
        if answer.status_code == _OK:
            return ProbeAnswer.GENERATED
        if answer.status_code in (_TOO_MANY, _UNAVAILABLE):
            return ProbeAnswer.BUSY
        return ProbeAnswer.FAILED if answer.status_code >= _SERVER_ERROR else ProbeAnswer.UNFIT

    def counters(self) -> object:
        """The engine's own counts of tokens; None where this version or its settings give none."""
        for path in list(self._paths):
            try:
                answer = self._client.get(path)
            except EngineError:
                return None
            if answer.status_code == _NOT_FOUND:
                self._paths.remove(path)  # it will not have it later
                continue
            if answer.status_code != _OK:
                continue
            found = _COUNTERS.findall(answer.text) if path == "/metrics" else _numbers(answer)
            if found:
                return found
        return None


def _numbers(answer: Answer) -> list[object]:
    try:
        document = answer.document()
    except EngineError:
        return []
    if isinstance(document, dict):
        document = document.get("loads")
    found: list[object] = []

    def walk(value: object, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, str(key))
        elif isinstance(value, list):
            for item in value:
                walk(item, name)
        elif isinstance(value, int | float) and not any(part in name for part in _OF_TIME):
            found.append((name, value))

    walk(document, "")
    return found


def stopped_process(pid: int | None) -> str | None:
    """A process of the engine that somebody has stopped (SIGSTOP), in words."""
    if pid is None:
        return None
    try:
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            if process.status() == psutil.STATUS_STOPPED:
                return f"its process {process.pid} ({_title(process)})"
    except psutil.Error:
        return None
    return None


def _title(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
    except psutil.Error:
        words = []
    return words[0] if words and words[0].startswith("sglang::") else process.name()
