"""Watch servers, each in its own thread, so a slow server does not delay the others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, mapping, number, read_json, single_line
from speclaunch.engine import acceptance_reference
from speclaunch.measure.bench.engines import key_of_server, server_url
from speclaunch.measure.bench.stored_names import stored_files, stored_length
from speclaunch.measure.watch_history import (
    LOCK,
    SINGLE_PROMPT,
    START_CHECK,
    EngineHistory,
    WatchBaseline,
    WatchedEngine,
    WatchEvent,
    WatchProblem,
    problems,
    rounded,
)
from speclaunch.serving import (
    EngineClient,
    EngineError,
    EngineMetrics,
    EngineRefusalError,
    Follower,
    LaunchState,
    NoMetricsError,
    RankMetrics,
    Run,
    decode_batch,
    find_run,
    list_runs,
    read_loads,
    read_metrics,
    reread_run,
)

_SECONDS = 5.0
"""Time limit for one request."""
_FACTS_SECONDS = 60.0
"""Seconds between `/server_info` requests, which interrupt the scheduler."""
_JOURNAL_SECONDS = 10.0
_MOST_EVENTS, _MOST_WORKERS, _LONGEST = 5, 10_000, 120
_MOST_TARGETS = 64
_OK, _UNAUTHORIZED = 200, (401, 403)
_ENABLE = "start the engine with --enable-metrics (in a recipe: +args.enable_metrics=true)"


class WatchTarget(Struct, frozen=True):
    """A server to watch. `run`: its launch, if speclaunch started it on this machine."""

    name: str
    url: str
    key: str | None = None
    run: Run | None = None


def watch_targets(names: Sequence[str]) -> list[WatchTarget]:
    """Return the servers with these launch names or addresses; without names, all running launches.

    Raises InputError.
    """
    key = key_of_server(is_baseline=False)
    runs = () if names else list_runs()
    found = [_target_of(run, key) for run in runs if run.holder is not None]
    for name in names:
        if "://" in name:
            url = server_url(name, "URL")
            found.append(WatchTarget(url.partition("://")[2], url, key))
        elif ":" in name:
            problem = f"{name}: an address begins with http:// or https://"
            raise InputError(problem, help=f"use http://{name}")
        else:
            found.append(_target_of(find_run(name, alive=True), key))
    if len(found) > _MOST_TARGETS:
        message = f"{len(found)} servers; watch shows at most {_MOST_TARGETS}"
        raise InputError(message, help="name fewer servers")
    return list({target.url: target for target in found}.values())


def _target_of(run: Run, key: str | None) -> WatchTarget:
    address = str(run.document.get("address") or (run.holder.address if run.holder else ""))
    return WatchTarget(run.name, address, key, run)


class EngineWatcher:
    """Watcher of one server. `record`: the latest state. `polls`: number of polls."""

    def __init__(self, target: WatchTarget, clock: Callable[[], float] = time.monotonic) -> None:
        self.record = WatchedEngine(name=single_line(target.name), url=single_line(target.url))
        self.polls = 0
        self._clock = clock
        self._client = EngineClient.of_server(target.url, target.key)
        self._history = EngineHistory()
        self._events: deque[WatchEvent] = deque(maxlen=_MOST_EVENTS)
        self._notes: list[str] = []
        self._info: Mapping[str, Any] = {}
        self._published: Mapping[str, float] = {}
        self._run = target.run
        self._measured = bench_lengths(target.run.recipe) if target.run else {}
        self._info_at = self._journal_at = -inf
        self._log: tuple[Path, Follower] | None = None
        self._batches: dict[str, RankMetrics] = {}

    def run(self, ended: threading.Event, interval: float) -> None:
        with self._client:
            while not ended.is_set():
                began = self._clock()
                self.poll()
                ended.wait(max(0.1, interval - (self._clock() - began)))

    def poll(self) -> None:
        """Read the server once, and replace `record`. Failures are recorded, not raised."""
        last, self._notes = self.record, []
        if self._clock() - self._journal_at >= _JOURNAL_SECONDS:
            self._read_journal()
        found = WatchedEngine(name=last.name, url=last.url, role=last.role, version=last.version)
        try:
            self._read(found)
            found.is_reachable = True
        except EngineError as error:
            self._read_journal()
            if self._run is not None and self._run.state is LaunchState.STARTING:
                found.is_starting = True
                self._notes.append(f"the engine is starting{_phase(self._run)}")
            else:
                found.problems = [WatchProblem("unreachable", _reason(error))]
        found.baselines, found.notes = self._baselines(), self._notes
        found.events = self._recent_events()
        found.restarts = self._history.restarts
        self.record = found
        self.polls += 1

    def _read(self, found: WatchedEngine) -> None:
        """Read a server's values into `found`. Raises EngineError."""
        try:
            metrics, found.source = read_metrics(self._client, _SECONDS), "metrics"
        except NoMetricsError:
            if self._read_router(found):
                return
            self._read_facts()
            metrics, found.source = read_loads(self._client, self._info), "server_info"
            self._notes.append(f"no /metrics: {_ENABLE}")
            if self._read_log():
                ranks = tuple(sorted(self._batches.values(), key=lambda item: item.rank.zfill(4)))
                metrics, found.source = replace(metrics, ranks=ranks, is_lifetime=False), "log"
        else:
            if self._clock() - self._info_at >= _FACTS_SECONDS:
                try:
                    self._read_facts()
                except EngineError as error:
                    self._notes.append(_reason(error, "/server_info"))
        self._add(found, metrics)

    def _add(self, found: WatchedEngine, metrics: EngineMetrics) -> None:
        """Add metrics to the history, and copy its results to `found`."""
        history, info, restarts = self._history, self._info, self._history.restarts
        for rank, change in history.add(self._clock(), metrics):
            self._note_event(f"rank {rank}: {change}" if rank else str(change))
        if history.restarts > restarts:
            self._note_event("the engine has started again: its counters begin at 0")
            self._info_at = -inf
        found.ranks, found.total, finished = history.ranks(), history.total(), history.finished
        role = metrics.role or info.get("disaggregation_mode")
        found.role = role if role in ("prefill", "decode") else "engine"
        found.version = _text(info.get("version"))
        found.model = _text(info.get("served_model_name") or info.get("model_path"))
        found.algorithm = _text(info.get("speculative_algorithm"))
        found.is_lifetime = metrics.is_lifetime
        if (total := found.total) is not None:
            # the gauges begin with the first decode_log_interval
            total.steps = total.steps or rounded(number(info.get("speculative_num_steps")))
            drafts = total.draft_tokens or rounded(number(info.get("speculative_num_draft_tokens")))
            total.draft_tokens = drafts
            length = total.accept_length_5m or total.accept_length or 0.0
            found.speculation_share = 1 - 1 / length if length >= 1 else None
        if finished and metrics.verifications is not None:
            found.verifications_5m = round(finished[1])
        found.baselines = self._baselines()
        found.problems = [*problems(found, history, info, self._recorded_drop())]
        if not found.algorithm and info:
            self._notes.append("it does not speculate")

    def _read_facts(self) -> None:
        self._info_at = self._clock()
        self._info = self._client.server_info(_SECONDS)
        self._published = published_lengths(self._info)

    def _read_router(self, found: WatchedEngine) -> bool:
        """Read a router's workers; return False for other servers. Raises EngineRefusalError.

        Source: sglang_router 0.3.2, sgl-model-gateway/src/server.rs (GET `/workers`, which needs
        the router's API key) and src/protocols/worker_spec.rs (WorkerInfo). The router's metrics
        use a different port.
        """
        answer = self._client.get("/workers", _SECONDS)
        if answer.status_code in _UNAUTHORIZED:
            raise EngineRefusalError("/workers", answer)
        try:
            workers = answer.json().get("workers") if answer.status_code == _OK else None
        except EngineError:
            workers = None
        if not isinstance(workers, list):
            return False
        known = [item for item in workers[:_MOST_WORKERS] if isinstance(item, dict)]
        healthy = sum(item.get("is_healthy") is True for item in known)
        found.role = found.source = "router"
        found.workers, found.workers_healthy = len(known), healthy
        if healthy < len(known) or not known:
            text = f"{healthy} of {len(known)} workers are healthy"
            found.problems = [WatchProblem("unhealthy workers", text)]
        self._notes.append("a router has no acceptance: watch its servers by their addresses")
        return True

    def _read_log(self) -> bool:
        """Read the log of a local engine; return True if it has decode steps."""
        log = self._run.log if self._run else None
        if log is None:
            return False
        if self._log is None or self._log[0] != log:  # each start has its own
            self._log, self._batches = (log, Follower(log)), {}
        for line in self._log[1].lines():
            batch = decode_batch(line)
            if batch is not None:
                self._batches[batch.rank] = batch
        return bool(self._batches)

    def _read_journal(self) -> None:
        self._journal_at = self._clock()
        self._run = self._run and reread_run(self._run)

    def _baselines(self) -> list[WatchBaseline]:
        """Return the known baselines: multi-prompt, then single-prompt, then published."""
        learned, run = self._history.learned, self._run
        known = {} if run is None else journal_lengths(run)
        known |= {"learned": learned} if learned else {}
        locked = {} if run is None else lock_lengths(run)
        known |= locked
        known |= {k: v for k, v in self._measured.items() if f"{LOCK}{k}" not in locked}
        own = sorted(known.items(), key=lambda item: item[0] in SINGLE_PROMPT)
        found = (*own, *self._published.items())
        return [WatchBaseline(source, round(length, 3)) for source, length in found]

    def _note_event(self, text: str) -> None:
        self._events.append(WatchEvent(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text))

    def _recent_events(self) -> list[WatchEvent]:
        recorded = [
            WatchEvent(single_line(str(item.get("at")))[:30], single_line(str(item.get("text"))))
            for item in (self._run.events if self._run else ())
        ]
        return sorted([*recorded, *self._events], key=lambda item: item.at)[-_MOST_EVENTS:]

    def _recorded_drop(self) -> str:
        """Return the journal's ongoing acceptance drop as text; empty if none."""
        last: dict[str, str] = {}
        for item in self._run.events if self._run else ():
            is_drop = item.get("kind") == "acceptance dropped"
            last[str(item.get("rank"))] = str(item.get("text")) if is_drop else ""
        return next((single_line(text) for text in last.values() if text), "")


def journal_lengths(run: Run) -> dict[str, float]:
    """Return a journal's acceptance lengths, by source: learned mean and start check."""
    last = run.attempts[-1] if run.attempts else {}
    course, verification = (mapping(last.get(name)) for name in ("course", "verification"))
    lengths = [
        length
        for item in mapping(course.get("baselines")).values()
        if (length := number(mapping(item).get("accept_length"))) is not None
    ]
    found = {"journal": sum(lengths) / len(lengths)} if lengths else {}
    first = number(mapping(verification.get("generation")).get("acceptance_length"))
    return found | ({START_CHECK: first} if first else {})


def lock_lengths(run: Run) -> dict[str, float]:
    """Return the acceptance lengths in the lock of a launch, by certificate."""
    found = ((f"{LOCK}{single_line(name)}", value) for name, value in run.header.locked.items())
    return {name[:_LONGEST]: value for name, value in found if number(value)}


def bench_lengths(recipe: str) -> dict[str, float]:
    """Return the acceptance length of a recipe's newest finished bench, if any, by source."""
    for path in reversed(stored_files()):
        if path.parent.name.split("-", 2)[-1] == recipe:
            length = stored_length(mapping((read_json(path) or {}).get("result")))
            if length:
                return {f"bench {path.parent.name}": length}
    return {}


def published_lengths(info: Mapping[str, Any]) -> dict[str, float]:
    """Return the lowest published acceptance length for a server's model and setting, if any."""
    target, draft = _text(info.get("model_path")), _text(info.get("speculative_draft_model_path"))
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    steps, topk, tokens = (rounded(number(info.get(f"speculative_{name}"))) for name in names)
    if target is None or _text(info.get("speculative_algorithm")) is None:
        return {}
    own = draft in (None, target)
    found = acceptance_reference(target, None if own else draft, (steps, topk, tokens))
    return {"published": found.lowest} if found else {}


@contextmanager
def watching(targets: Sequence[WatchTarget], interval: float) -> Iterator[list[EngineWatcher]]:
    """Poll servers during the block, each in its own thread; yield the watchers."""
    ended = threading.Event()
    watchers = [EngineWatcher(target) for target in targets]
    for item in watchers:
        threading.Thread(target=item.run, args=(ended, interval), daemon=True).start()
    try:
        yield watchers
    finally:
        ended.set()


def wait_for_polls(watchers: Sequence[EngineWatcher], most: int, seconds: float) -> None:
    """Wait up to `seconds` until reachable servers were polled `most` times, and others once."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(
        item.polls >= (most if item.record.is_reachable else 1) for item in watchers
    ):
        time.sleep(0.05)


def watched_once(targets: Sequence[WatchTarget], interval: float) -> list[WatchedEngine]:
    """Return each server's state from two polls `interval` seconds apart."""
    with watching(targets, interval) as watchers:
        wait_for_polls(watchers, 2, interval + 8 * _SECONDS)
        return [item.record for item in watchers]


def _phase(run: Run) -> str:
    steps = run.attempts[-1].get("milestones") if run.attempts else None
    phase = _text(mapping(steps[-1]).get("phase")) if isinstance(steps, list) and steps else None
    return f": {phase}" if phase else ""


def _reason(error: EngineError, path: str = "") -> str:
    text, path = str(error), error.path or path
    if not text.startswith(path):
        text = f"{path} {text}"
    if isinstance(error, EngineRefusalError) and error.answer.status_code in _UNAUTHORIZED:
        text += ": set the key in SPECLAUNCH_API_KEY"
    return single_line(text)[:_LONGEST]


def _text(value: object) -> str | None:
    return single_line(value)[:_LONGEST] if isinstance(value, str) and value else None
