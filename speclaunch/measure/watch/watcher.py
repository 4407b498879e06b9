"""Watch servers: one thread a server, so that a slow one delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Problem, mapping, read_json, single_line
from speclaunch.engine import acceptance_reference
from speclaunch.measure.bench.running import key_of_server, server_url
from speclaunch.measure.bench.stored_names import stored_files
from speclaunch.measure.watch.document import (
    START_CHECK,
    WatchBaseline,
    WatchedEngine,
    WatchEvent,
    WatchProblem,
    problems,
)
from speclaunch.measure.watch.history import EngineHistory
from speclaunch.serving import (
    FILE,
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
    number,
    read_loads,
    read_metrics,
)

_SECONDS = 5.0
"""Maximum time of one request."""
_FACTS_SECONDS = 60.0
"""Interval of `/server_info`, which interrupts the scheduler."""
_JOURNAL_SECONDS = 10.0
_MOST_EVENTS, _MOST_WORKERS, _LONGEST = 5, 10_000, 120
_MOST_TARGETS = 64
_ENABLE = "start the engine with --enable-metrics (in a recipe: +args.enable_metrics=true)"


class WatchTarget(Struct, frozen=True):
    """A server to watch. `run`: its launch, if speclaunch started it on this machine."""

    name: str
    url: str
    key: str | None = None
    run: Run | None = None


def watch_targets(names: Sequence[str]) -> list[WatchTarget]:
    """Return the servers of these launches and addresses; without names, of all running launches.

    Raises InputError.
    """
    key = key_of_server(is_baseline=False)
    if not names:
        runs = [run for run in list_runs() if run.holder is not None]
    found = [] if names else [_target_of(run, key) for run in runs]
    for name in names:
        if "://" in name:
            url = server_url(name, "URL")
            found.append(WatchTarget(url.partition("://")[2], url, key))
        elif ":" in name:
            problem = f"{name}: an address begins with http:// or https://"
            raise InputError(Problem(problem, help=f"speclaunch watch http://{name}"))
        else:
            found.append(_target_of(find_run(name, alive=True), key))
    if len(found) > _MOST_TARGETS:
        raise InputError(Problem(f"{len(found)} servers; watch shows at most {_MOST_TARGETS}"))
    return list({target.url: target for target in found}.values())


def _target_of(run: Run, key: str | None) -> WatchTarget:
    address = str(run.document.get("address") or (run.holder.address if run.holder else ""))
    return WatchTarget(run.name, address, key, run)


class EngineWatcher:
    """Watcher of one server. `record` is its latest state."""

    def __init__(self, target: WatchTarget, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = target
        self.record = WatchedEngine(name=single_line(target.name), url=single_line(target.url))
        self.polls = 0
        self._clock = clock
        self._client = EngineClient.of_server(target.url, target.key)
        self._history = EngineHistory()
        self._events: list[WatchEvent] = []
        self._info: Mapping[str, Any] = {}
        self._info_at = self._journal_at = -_FACTS_SECONDS
        self._run = target.run
        self._baselines: list[WatchBaseline] = []
        self._published: list[WatchBaseline] = []
        self._measured = bench_baselines(target.run.recipe) if target.run else []
        self._log: tuple[Path, Follower] | None = None
        self._batches: dict[str, RankMetrics] = {}
        self._notes: list[str] = []

    def run(self, ended: threading.Event, interval: float) -> None:
        """Poll until `ended`."""
        with self._client:
            while not ended.is_set():
                began = self._clock()
                self.poll()
                ended.wait(max(0.1, interval - (self._clock() - began)))

    def poll(self) -> None:
        """Read the server once, and replace `record`. Raises nothing."""
        self._notes = []
        self._read_journal()
        base = replace(self.record, problems=[], notes=self._notes, is_reachable=True)
        try:
            found = self._polled(base)
        except EngineError as error:
            text = _reason(error)
            if self._run is not None and self._run.document.get("state") == LaunchState.STARTING:
                text = "the engine is starting"
            found = WatchedEngine(
                name=base.name,
                url=base.url,
                role=base.role,
                version=base.version,
                problems=[WatchProblem("unreachable", text)],
                notes=self._notes,
            )
        self.record = replace(
            found,
            baselines=self._known_baselines(),
            events=self._recent_events(),
            restarts=self._history.restarts,
        )
        self.polls += 1

    def _polled(self, base: WatchedEngine) -> WatchedEngine:
        source = "metrics"
        try:
            metrics = read_metrics(self._client, _SECONDS)
        except NoMetricsError:
            router = self._router(base)
            if router is not None:
                return router
            self._info_at = -_FACTS_SECONDS
            self._read_facts(is_required=True)
            metrics, source = read_loads(self._client, self._info), "server_info"
            self._notes.append(f"no /metrics: {_ENABLE}")
            if self._read_log():
                ranks = tuple(sorted(self._batches.values(), key=lambda item: item.rank.zfill(4)))
                metrics, source = replace(metrics, ranks=ranks, is_lifetime=False), "log"
        else:
            self._read_facts(is_required=False)
        return self._recorded(base, metrics, source)

    def _recorded(self, base: WatchedEngine, metrics: EngineMetrics, source: Any) -> WatchedEngine:
        history, info, restarts = self._history, self._info, self._history.restarts
        for rank, change in history.add(self._clock(), metrics):
            self._note_event(f"rank {rank}: {change}" if rank else str(change))
        if history.restarts > restarts:
            self._note_event("the engine has started again: its counters begin at 0")
            self._info_at = -_FACTS_SECONDS
        total, finished = history.total(), history.finished
        if total is not None:  # the gauges begin with the first decode_log_interval
            total.steps = total.steps or _rounded(info.get("speculative_num_steps"))
            drafts = total.draft_tokens or _rounded(info.get("speculative_num_draft_tokens"))
            total.draft_tokens = drafts
        length = None if total is None else total.accept_length_5m or total.accept_length
        role = metrics.role or info.get("disaggregation_mode")
        found = replace(
            base,
            role=role if role in ("prefill", "decode") else "engine",
            source=source,
            version=_text(info.get("version")),
            model=_text(info.get("served_model_name") or info.get("model_path")),
            algorithm=_text(info.get("speculative_algorithm")),
            is_lifetime=metrics.is_lifetime,
            total=total,
            ranks=history.ranks(),
            speculation_share=1 - 1 / length if length and length >= 1 else None,
            verifications_5m=(
                round(finished[1]) if finished and metrics.verifications is not None else None
            ),
            baselines=self._known_baselines(),
        )
        found.problems.extend(problems(found, history, info))
        kinds = {problem.kind for problem in found.problems}
        if self._dropped() and "acceptance dropped" not in kinds:
            found.problems.append(WatchProblem("acceptance dropped", self._dropped()))
        if not found.algorithm and info:
            self._notes.append("it does not speculate")
        return found

    def _read_facts(self, *, is_required: bool) -> None:
        """Read `/server_info` from time to time. Raises EngineError only if required."""
        if self._clock() - self._info_at < _FACTS_SECONDS:
            return
        self._info_at = self._clock()
        try:
            self._info = self._client.server_info(_SECONDS)
            self._published = published_baselines(self._info)
        except EngineError as error:
            if is_required:
                raise
            self._notes.append(_reason(error, "/server_info"))

    def _router(self, base: WatchedEngine) -> WatchedEngine | None:
        """Return the record of a router (`/workers` of sglang_router); None for anything else."""
        answer = self._client.get("/workers", _SECONDS)
        try:
            workers = answer.json().get("workers") if answer.status_code == 200 else None
        except EngineError:
            workers = None
        if not isinstance(workers, list):
            return None
        known = [item for item in workers[:_MOST_WORKERS] if isinstance(item, dict)]
        healthy = sum(item.get("is_healthy", item.get("healthy")) is True for item in known)
        found = replace(
            base, role="router", source="router", workers=len(known), workers_healthy=healthy
        )
        if healthy < len(known) or not known:
            text = f"{healthy} of {len(known)} workers are healthy"
            found.problems.append(WatchProblem("unhealthy workers", text))
        self._notes.append("a router has no acceptance: watch its servers by their addresses")
        return found

    def _read_log(self) -> bool:
        """Read the log of an engine of this machine; return True if it has decode steps."""
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
        run, now = self._run, self._clock()
        if run is None or now - self._journal_at < _JOURNAL_SECONDS:
            return
        self._journal_at = now
        run = self._run = replace(run, document=read_json(run.directory / FILE) or run.document)
        self._baselines = [*journal_baselines(run), *self._measured]

    def _known_baselines(self) -> list[WatchBaseline]:
        learned = self._history.learned
        own = [WatchBaseline("learned", round(learned, 3))] if learned else []
        return [*self._baselines, *own, *self._published]

    def _note_event(self, text: str) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._events = [*self._events, WatchEvent(at, text)][-_MOST_EVENTS:]

    def _recent_events(self) -> list[WatchEvent]:
        recorded = [
            WatchEvent(single_line(str(item.get("at")))[:30], single_line(str(item.get("text"))))
            for item in (self._run.events if self._run else ())
        ]
        return sorted([*recorded, *self._events], key=lambda item: item.at)[-_MOST_EVENTS:]

    def _dropped(self) -> str:
        """Return the drop that the journal holds and that has not ended; empty without one."""
        last: dict[str, str] = {}
        for item in self._run.events if self._run else ():
            is_drop = item.get("kind") == "acceptance dropped"
            last[str(item.get("rank"))] = str(item.get("text")) if is_drop else ""
        return next((single_line(text) for text in last.values() if text), "")


def journal_baselines(run: Run) -> list[WatchBaseline]:
    """Return the acceptance lengths in the journal of a launch: learned, and of its first check."""
    last = run.attempts[-1] if run.attempts else {}
    course, verification = (mapping(last.get(name)) for name in ("course", "verification"))
    lengths = [
        length
        for item in mapping(course.get("baselines")).values()
        if (length := number(mapping(item).get("accept_length"))) is not None
    ]
    found = [WatchBaseline("journal", round(_mean(lengths), 3))] if lengths else []
    first = number(mapping(verification.get("generation")).get("acceptance_length"))
    return [*found, WatchBaseline(START_CHECK, round(first, 3))] if first else found


def bench_baselines(recipe: str) -> list[WatchBaseline]:
    """Return the acceptance length of the newest finished measurement of a recipe."""
    for path in reversed(stored_files()):
        if path.parent.name.split("-", 2)[-1] != recipe:
            continue
        result = mapping((read_json(path) or {}).get("result"))
        cells = result.get("cells")
        lengths = [
            length
            for cell in map(mapping, cells if isinstance(cells, list) else ())
            if (length := number(mapping(cell.get("candidate", cell)).get("accept_length")))
        ]
        if lengths:
            return [WatchBaseline(f"bench {path.parent.name}", round(_mean(lengths), 3))]
    return []


def published_baselines(info: Mapping[str, Any]) -> list[WatchBaseline]:
    """Return the lowest published acceptance length for a server's checkpoints and setting."""
    target, draft = _text(info.get("model_path")), _text(info.get("speculative_draft_model_path"))
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    steps, topk, tokens = (_rounded(info.get(f"speculative_{name}")) for name in names)
    if target is None or _text(info.get("speculative_algorithm")) is None:
        return []
    own = draft in (None, target)
    found = acceptance_reference(target, None if own else draft, (steps, topk, tokens))
    return [WatchBaseline("published", round(found.lowest, 3))] if found else []


def watched_once(targets: Sequence[WatchTarget], interval: float) -> list[WatchedEngine]:
    """Return the state of each server from two readings that are `interval` seconds apart."""
    watchers = [EngineWatcher(target) for target in targets]

    def twice(watcher: EngineWatcher) -> None:
        watcher.poll()
        if watcher.record.is_reachable:
            time.sleep(interval)
            watcher.poll()

    threads = [threading.Thread(target=twice, args=(item,), daemon=True) for item in watchers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + interval + 8 * _SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [watcher.record for watcher in watchers]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _reason(error: EngineError, path: str = "") -> str:
    """Return the text of an error, with its path."""
    text, path = str(error), error.path or path
    if not text.startswith(path):
        text = f"{path} {text}"
    if isinstance(error, EngineRefusalError) and error.answer.status_code in (401, 403):
        text += ": set the key in SPECLAUNCH_API_KEY"
    return single_line(text)[:_LONGEST]


def _rounded(value: object) -> int | None:
    found = number(value)
    return None if found is None else round(found)


def _text(value: object) -> str | None:
    return single_line(value)[:_LONGEST] if isinstance(value, str) and value else None
