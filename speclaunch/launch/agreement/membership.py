"""One life of a rank in the shared directory: how it comes, what it sees, what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch.launch.agreement.presence import is_gone
from speclaunch.launch.agreement.protocol import Peer, View
from speclaunch.launch.agreement.records import (
    Decision,
    DecisionKind,
    Failure,
    Joined,
    Name,
    RankStage,
    RankState,
    dump,
    dump_state,
    epoch_file,
    failed_file,
    generation_directory,
    generations,
    is_failure,
    life_file,
    load_decision,
    load_failure,
    load_joined,
    load_state,
    read_epoch,
    read_life,
)
from speclaunch.launch.agreement.shared_memory import SharedMemory, memory_key
from speclaunch.launch.agreement.store import (
    DirectoryStore,
    RecordError,
    Store,
    make_directory,
)

OpenStore = Callable[[Path, str], Store]
_SLACK = 1.25
_SLACK_SECONDS = 2.0
"""A lease has run out for others later than for its holder: by this, in which its engine is
killed."""
_TRIES = 100
_LEASES, _LEASE_SECONDS = 10, 60.0
"""The longest lease of another rank that is believed: so many of this rank's, and at least this
long. A rank with a longer one could not be waited for."""
_NEW_JOB = "end this launch on every host, and start it with another launch.agreement.job"


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
        self._states: dict[tuple[bool, Name], RankState] = {}
        self._gone: set[tuple[bool, Name]] = set()
        self._suspects: set[Name] = set()
        self._unreadable: dict[str, str] = {}

    def join(self) -> View:
        """Come: in the newest generation, or in a new one where that has ended."""
        make_directory(self._job)
        owner = f"{self.joined.name.member}-{self.joined.mark}"
        root = self._open(self._job, owner)
        found = generations(root.names())
        number = self.generation = found[-1] if found else 1
        if found and self._has_ended(self._open(generation_directory(self._job, number), owner)):
            number += 1
        make_directory(generation_directory(self._job, number))
        self.generation = number
        self._store = self._open(generation_directory(self._job, number), owner)
        if number - 1 in found:
            self._former = self._open(generation_directory(self._job, number - 1), owner)
        self.sweep()
        self._take_life(self._store)
        view = self.look()
        first = self.joined.name.life == 1  # then the first decision has counted on it
        self.joined_at = view.decisions[-1].epoch if view.decisions and not first else -1
        return view

    def beat(self, state: RankState) -> None:
        """Say that it lives, and where it is."""
        self._required.overwrite(life_file("beat", self.joined.name), dump_state(state))

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
        decisions, damaged = self._decisions(store, names)
        failures = []
        for name in sorted(filter(is_failure, names)):
            found = self._once(store, name, load_failure)
            if isinstance(found, Failure):
                failures.append(found)
            elif name.endswith(f"-{self.joined.name}.json"):
                damaged = damaged or self._unreadable.get(self._key(name), "")
        served = [epoch for kind, epoch in _epochs(names) if kind == "served"]
        return View(
            decisions=decisions,
            known_good=None if decisions else self._known_good(),
            peers=tuple(peers),
            failures=tuple(failures),
            served=max((epoch for epoch in served if epoch < len(decisions)), default=-1),
            fenced=any(
                peer.joined.name.member == self.joined.name.member
                and peer.joined.name.life > self.joined.name.life
                for peer in peers
                if not peer.former
            ),
            unreadable=tuple(self._unreadable.values()),
            damaged=damaged and f"{damaged}; {_NEW_JOB}",
        )

    def created(self, file: str) -> None:
        """What follows from having made that file: it is remembered what served."""
        found = read_epoch(file)
        if found is None:
            return
        kind, epoch = found
        decisions, _ = self._decisions(self._required, self._required.names())
        before = decisions[epoch - 1] if 0 < epoch <= len(decisions) else None
        if kind == "served" and epoch < len(decisions):
            self._memory.remember(self._memory_key(decisions[epoch].parts), decisions[epoch])
        after = decisions[epoch] if kind == "epoch" and epoch < len(decisions) else None
        if before is not None and after is not None and after.kind is DecisionKind.MEMORY:
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
        decisions, _ = self._decisions(store, store.names())
        self._immutable.clear()
        self._unreadable.clear()
        return bool(decisions) and decisions[-1].end

    def _take_life(self, store: Store) -> None:
        lives = [found[1] for name in store.names() if (found := read_life(name))]
        name = self.joined.name
        number = max((one.life for one in lives if one.member == name.member), default=0)
        for life in range(number + 1, number + _TRIES):
            self.joined = replace(self.joined, name=replace(name, life=life))
            if store.create(life_file("life", self.joined.name), dump(self.joined)):
                return
        raise AssertionError(name)  # a hundred came at the same time

    def _decisions(self, store: Store, names: list[str]) -> tuple[tuple[Decision, ...], str]:
        """The decisions up to the first that is not there or not valid, and why that is so."""
        found: list[Decision] = []
        for epoch in sorted(epoch for kind, epoch in _epochs(names) if kind == "epoch"):
            name = epoch_file("epoch", len(found))
            one = self._once(store, name, load_decision) if epoch == len(found) else None
            if not isinstance(one, Decision):
                path = self._key(name)
                return tuple(found), self._unreadable.get(path, f"{path} is missing")
            found.append(one)
        return tuple(found), ""

    def _peers(self, store: Store, names: list[str], *, former: bool) -> list[Peer]:
        lives = [one for name in names if (one := read_life(name)) is not None]
        gone = {name for kind, name in lives if kind == "gone"}
        peers = []
        for kind, name in lives:
            if kind != "life" or (name == self.joined.name and not former):
                continue
            joined = self._once(store, life_file("life", name), load_joined, former=former)
            peer = self._peer(
                store,
                # no more is known of one that cannot be read than that it may run an engine
                joined
                if isinstance(joined, Joined)
                else Joined(name, "", lease_seconds=self.joined.lease_seconds),
                gone=name in gone,
                former=former,
            )
            peers.append(peer if isinstance(joined, Joined) else replace(peer, former=True))
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
        key_of_file = self._key(life_file("beat", joined.name), former=key[0])
        problem = ""
        try:
            data = store.read(life_file("beat", joined.name))
        except RecordError as error:
            data, problem = None, str(error)
        state = None if data is None else load_state(data)
        if data is not None and state is None:
            problem = f"{key_of_file} is not a valid record"  # or is being written
        now = self._clock()
        before = self._beats.get(key, (-1, now))
        if state is not None:
            self._states[key] = state
        beat = before[0] if state is None else state.beat
        self._beats[key] = before if beat == before[0] and key in self._beats else (beat, now)
        left = state is not None and state.stage is RankStage.LEFT
        silent = now - self._beats[key][1]
        if left or silent > joined.lease_seconds * _SLACK + _SLACK_SECONDS:
            self._gone.add(key)
            if problem:
                self._unreadable[key_of_file] = problem
        elif joined.name.member == self.joined.name.member and self._ended_here(joined):
            if not key[0]:
                store.create(life_file("gone", joined.name), b"{}\n")
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
        """The record in a file that never changes, read once; None if it is not valid."""
        key = self._key(file, former=former)
        if self._immutable.get(key) is None:
            try:
                data = store.read(file)
            except RecordError as error:
                self._unreadable[key] = str(error)
                return None
            found = None if data is None else load(data)
            if data is not None and (found is None or not self._fits(found, file)):
                self._unreadable[key] = f"{key} is not a valid record"
                return None
            self._immutable[key] = found
            self._unreadable.pop(key, None)
        return self._immutable[key]

    def _key(self, file: str, *, former: bool = False) -> str:
        """The path of a file."""
        return str(generation_directory(self._job, self.generation - former) / file)

    def _fits(self, found: Joined | Decision | Failure, file: str) -> bool:
        """True if a record belongs in its file, and in this launch."""
        if isinstance(found, Joined):
            longest = max(_LEASES * self.joined.lease_seconds, _LEASE_SECONDS)
            return life_file("life", found.name) == file and found.lease_seconds <= longest
        if isinstance(found, Decision):
            return epoch_file("epoch", found.epoch) == file and set(found.parts) == set(self._world)
        return failed_file(found.epoch, found.name) == file


def _epochs(names: list[str]) -> list[tuple[str, int]]:
    return [found for name in names if (found := read_epoch(name)) is not None]
