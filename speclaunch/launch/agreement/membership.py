"""One life of a rank in the shared directory: how it comes, what it sees, what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch.launch.agreement import layout
from speclaunch.launch.agreement.presence import is_gone
from speclaunch.launch.agreement.protocol import Peer, View
from speclaunch.launch.agreement.records import (
    Decision,
    Failure,
    Joined,
    Kind,
    Name,
    Stage,
    State,
    dump,
    dump_state,
    load_decision,
    load_failure,
    load_joined,
    load_state,
)
from speclaunch.launch.agreement.shared_memory import SharedMemory, memory_key
from speclaunch.launch.agreement.store import DirectoryStore, Store, make_directory

OpenStore = Callable[[Path, str], Store]
_SLACK = 1.25
_SLACK_SECONDS = 2.0
"""A lease has run out for others later than for its holder: by this, in which its engine is
killed."""
_TRIES = 100


class Membership:
    """A life, from `join` to `leave`. All of it may raise StoreError, and may be tried again."""

    def __init__(
        self,
        job: Path,
        joined: Joined,
        world: Iterable[str],
        clock: Callable[[], float],
        open_store: OpenStore = DirectoryStore,
    ) -> None:
        """`joined.name.life` is found out by `join`. `world`: the parts. `clock`: seconds that
        never jump."""
        self._job, self._clock, self._open = job, clock, open_store
        self._world = tuple(world)
        self._memory = SharedMemory(job.parent / "last-good", open_store)
        self.joined = joined
        self.generation = 0
        self.joined_at = -1
        self._store: Store | None = None
        self._former: Store | None = None
        self._immutable: dict[str, Joined | Decision | Failure | None] = {}
        self._beats: dict[tuple[bool, Name], tuple[int, float]] = {}
        self._states: dict[tuple[bool, Name], State] = {}
        self._gone: set[tuple[bool, Name]] = set()
        self._suspects: set[Name] = set()

    def join(self) -> View:
        """Come: in the newest generation, or in a new one where that has ended."""
        make_directory(self._job)
        owner = f"{self.joined.name.member}-{self.joined.mark}"
        root = self._open(self._job, owner)
        found = layout.generations(root.names())
        number = found[-1] if found else 1
        if found and self._has_ended(self._open(layout.generation(self._job, number), owner)):
            number += 1
        make_directory(layout.generation(self._job, number))
        self.generation = number
        self._store = self._open(layout.generation(self._job, number), owner)
        if number - 1 in found:
            self._former = self._open(layout.generation(self._job, number - 1), owner)
        self.sweep()
        self._take_life(self._store)
        view = self.look()
        first = self.joined.name.life == 1  # then the first decision has counted on it
        self.joined_at = view.decisions[-1].epoch if view.decisions and not first else -1
        return view

    def beat(self, state: State) -> None:
        """Say that it lives, and where it is."""
        self._required.overwrite(layout.beat(self.joined.name), dump_state(state))

    def create(self, file: str, data: bytes) -> bool:
        """Make a file that never changes; whether it was us."""
        return self._required.create(file, data)

    def look(self) -> View:
        """What is there now."""
        store = self._required
        names = store.names()
        peers = self._peers(store, names, former=False)
        if self._former is not None:
            peers += self._former_peers(self._former)
        decisions = self._decisions(store, names)
        return View(
            decisions=decisions,
            known_good=None if decisions else self._known_good(),
            peers=tuple(peers),
            failures=tuple(
                found
                for name in sorted(names)
                if layout.is_failure(name)
                and isinstance(found := self._once(store, name, load_failure), Failure)
            ),
            served=max((epoch for kind, epoch in _epochs(names) if kind == "served"), default=-1),
            fenced=any(
                peer.joined.name.member == self.joined.name.member
                and peer.joined.name.life > self.joined.name.life
                for peer in peers
                if not peer.former
            ),
        )

    def created(self, file: str) -> None:
        """What follows from having made that file: it is remembered what served."""
        found = layout.read_epoch(file)
        if found is None:
            return
        kind, epoch = found
        decisions = self._decisions(self._required, self._required.names())
        before = decisions[epoch - 1] if 0 < epoch <= len(decisions) else None
        if kind == "served" and epoch < len(decisions):
            self._memory.remember(self._memory_key(decisions[epoch].parts), decisions[epoch])
        after = decisions[epoch] if kind == "epoch" and epoch < len(decisions) else None
        if before is not None and after is not None and after.kind is Kind.MEMORY:
            self._memory.forget(self._memory_key(before.parts), before)

    def sweep(self) -> None:
        """Remove what earlier lives of this rank left unfinished."""
        self._required.sweep(f"{self.joined.name.member}-")

    def _memory_key(self, parts: Iterable[str]) -> str | None:
        """What the shared memory knows this by; None while a part has not come."""
        keys = {self.joined.name.part: self.joined.key}
        for one in self._immutable.values():
            if isinstance(one, Joined):
                keys.setdefault(one.name.part, one.key)
        return memory_key(keys) if set(keys) >= set(parts) else None

    def _known_good(self) -> Mapping[str, Mapping[str, Any]] | None:
        return self._memory.recall(self._memory_key(self._world))

    @property
    def _required(self) -> Store:
        assert self._store is not None  # noqa: S101 - `join` comes first
        return self._store

    def _has_ended(self, store: Store) -> bool:
        decisions = self._decisions(store, store.names())
        self._immutable.clear()
        return bool(decisions) and decisions[-1].end

    def _take_life(self, store: Store) -> None:
        lives = [found[1] for name in store.names() if (found := layout.read_life(name))]
        name = self.joined.name
        number = max((one.life for one in lives if one.member == name.member), default=0)
        for life in range(number + 1, number + _TRIES):
            self.joined = replace(self.joined, name=replace(name, life=life))
            if store.create(layout.life(self.joined.name), dump(self.joined)):
                return
        raise AssertionError(name)  # a hundred came at the same time

    def _decisions(self, store: Store, names: list[str]) -> tuple[Decision, ...]:
        found: list[Decision] = []
        for epoch in sorted(epoch for kind, epoch in _epochs(names) if kind == "epoch"):
            one = self._once(store, layout.epoch(epoch), load_decision)
            if epoch != len(found) or not isinstance(one, Decision):
                break
            found.append(one)
        return tuple(found)

    def _peers(self, store: Store, names: list[str], *, former: bool) -> list[Peer]:
        lives = [one for name in names if (one := layout.read_life(name)) is not None]
        gone = {name for kind, name in lives if kind == "gone"}
        peers = []
        for kind, name in lives:
            if kind != "life" or (name == self.joined.name and not former):
                continue
            joined = self._once(store, layout.life(name), load_joined, former=former)
            if isinstance(joined, Joined) and joined.name == name:
                peers.append(self._peer(store, joined, gone=name in gone, former=former))
        return peers

    def _former_peers(self, store: Store) -> list[Peer]:
        peers = [one for one in self._peers(store, store.names(), former=True) if not one.gone]
        if not peers:
            self._former = None
        return peers

    def _peer(self, store: Store, joined: Joined, *, gone: bool, former: bool) -> Peer:
        key = (former, joined.name)
        if gone:
            self._gone.add(key)
        if key not in self._gone:
            self._hear(store, joined, key)
        return Peer(joined, self._states.get(key), key in self._gone, former)

    def _hear(self, store: Store, joined: Joined, key: tuple[bool, Name]) -> None:
        """Read its state; it is gone when it left, or did not change for longer than its lease."""
        data = store.read(layout.beat(joined.name))
        state = None if data is None else load_state(data)
        now = self._clock()
        before = self._beats.get(key, (-1, now))
        if state is not None:
            self._states[key] = state
        beat = before[0] if state is None else state.beat
        self._beats[key] = before if beat == before[0] and key in self._beats else (beat, now)
        left = state is not None and state.stage is Stage.LEFT
        silent = now - self._beats[key][1]
        if left or silent > joined.lease_seconds * _SLACK + _SLACK_SECONDS:
            self._gone.add(key)
        elif joined.name.member == self.joined.name.member and self._ended_here(joined):
            if not key[0]:
                store.create(layout.gone(joined.name), b"{}\n")
            self._gone.add(key)

    def _ended_here(self, joined: Joined) -> bool:
        """Whether it is an earlier life on this host of which no process is left, seen twice:
        between the first time and the second its guard has ended."""
        if not is_gone(joined):
            self._suspects.discard(joined.name)
            return False
        if joined.name in self._suspects:
            return True
        self._suspects.add(joined.name)
        return False

    def _once(
        self,
        store: Store,
        file: str,
        load: Callable[[bytes], Joined | Decision | Failure | None],
        *,
        former: bool = False,
    ) -> Joined | Decision | Failure | None:
        """What stands in a file that never changes, read once."""
        key = f"{former}/{file}"
        if self._immutable.get(key) is None:
            data = store.read(file)
            self._immutable[key] = None if data is None else load(data)
        return self._immutable[key]


def _epochs(names: list[str]) -> list[tuple[str, int]]:
    return [found for name in names if (found := layout.read_epoch(name)) is not None]
