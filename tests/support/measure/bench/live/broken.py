"""Runs that must not count: what each kind does to one side, and what the gate says to it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator

import psutil

from tests.support.measure.bench.live.proxy import CutError, Event, Through

GENERATE = "/generate"


class Silent(Through):
    """Generates nothing, and says so."""

    def said(self, events: Iterator[Event], body: Event) -> Iterator[Event]:
        for event in events:
            event["meta_info"]["completion_tokens"] = 0
            yield {**event, "text": "", "output_ids": []}


class Mute(Through):
    """Says that it generated what was asked for, and no text comes."""

    def said(self, events: Iterator[Event], body: Event) -> Iterator[Event]:
        for event in events:
            yield {**event, "text": ""}


class Failing(Through):
    """Answers with status 500."""

    def instead(self, path: str, body: Event) -> tuple[int, str] | None:
        return (500, "Internal Server Error") if path == GENERATE else None


class Overloaded(Through):
    """Refuses one request in three with status 503."""

    count = 0

    def instead(self, path: str, body: Event) -> tuple[int, str] | None:
        if path != GENERATE:
            return None
        self.count += 1
        return None if self.count % 3 else (503, "The server is overloaded")


class Ailing(Through):
    """Answers with status 200 and an error in the text of the event."""

    def said(self, events: Iterator[Event], body: Event) -> Iterator[Event]:
        next(events)
        yield {"error": {"message": "Input length exceeds the maximum", "code": 400}}


class Cut(Through):
    """Ends the connection in the middle of an answer."""

    def said(self, events: Iterator[Event], body: Event) -> Iterator[Event]:
        for number, event in enumerate(events):
            if number == 2:
                raise CutError
            yield event


class Cached(Through):
    """Keeps the radix cache when it is told to flush it."""

    def instead(self, path: str, body: Event) -> tuple[int, str] | None:
        return (200, "Cache flushed.") if path == "/flush_cache" else None


class Stored(Through):
    """Answers a prompt that it knows from a store of its own, as a gateway does."""

    def __init__(self, engine: str) -> None:
        super().__init__(engine)
        self.store: dict[str, list[Event]] = {}

    def said(self, events: Iterator[Event], body: Event) -> Iterator[Event]:
        key = json.dumps(body.get("text") or body.get("input_ids"))
        if key not in self.store:
            self.store[key] = list(events)
        yield from self.store[key]


class Halved(Through):
    """Has half of the tokens generated."""

    def asked(self, body: Event) -> Event:
        sampling = body["sampling_params"]
        most = sampling["max_new_tokens"] // 2
        return {**body, "sampling_params": {**sampling, "max_new_tokens": most}}


class Truncating(Through):
    """Stops one answer in three after its first tokens."""

    count = 0

    def asked(self, body: Event) -> Event:
        self.count += 1
        if self.count % 3:
            return body
        return {**body, "sampling_params": {**body["sampling_params"], "max_new_tokens": 3}}


class Shortening(Through):
    """Cuts the prompts of one side."""

    def asked(self, body: Event) -> Event:
        if "text" in body:
            return {**body, "text": body["text"][: len(body["text"]) // 2]}
        return {**body, "input_ids": body["input_ids"][: len(body["input_ids"]) // 2]}


class Boasting(Through):
    """Claims that more tokens were accepted in a step than were proposed."""

    def said(self, events: Iterator[Event], body: Event) -> Iterator[Event]:
        for event in events:
            event["meta_info"]["spec_verify_ct"] = 1
            yield event


class Tiring(Through):
    """Becomes eight times as slow when half of its rounds are over."""

    flushes = 0

    def instead(self, path: str, body: Event) -> tuple[int, str] | None:
        self.flushes += path == "/flush_cache"  # once a round
        self.pace = 8.0 if self.flushes > FLUSHES_BEFORE else 1.0
        return None


FLUSHES_BEFORE = 4
"""Two rounds warm up, two are measured."""


class Dying(Through):
    """Its scheduler is killed when the measured rounds begin."""

    flushes = 0
    pid = 0
    """Of the engine."""

    def instead(self, path: str, body: Event) -> tuple[int, str] | None:
        self.flushes += path == "/flush_cache"
        if self.flushes == 3:
            for one in psutil.Process(self.pid).children(recursive=True):
                if "scheduler" in " ".join(one.cmdline()):
                    os.kill(one.pid, signal.SIGKILL)
        return None


BROKEN: dict[str, tuple[Callable[[str], Through], str]] = {
    "no tokens": (Silent, "no-tokens"),
    "tokens without text": (Mute, "no-tokens"),
    "status 503 now and then": (Overloaded, "errors"),
    "an error inside of status 200": (Ailing, "no-tokens"),
    "a connection that is cut": (Cut, "tokens"),
    "a cache that is kept": (Cached, "cache"),
    "a store in between": (Stored, "cache"),
    "half of the tokens": (Halved, "tokens"),
    "truncated answers": (Truncating, "tokens"),
    "other prompts": (Shortening, "prompts"),
    "impossible acceptance": (Boasting, "acceptance"),
    "drift": (Tiring, "drift"),
}
"""What is done to the side that speculates, and the kind of objection."""
