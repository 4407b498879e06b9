"""Membership of a rank in the shared directory: joining, reading, writing and leaving."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from speclaunch.serving.launch.agreement.protocol import Peer, View
from speclaunch.serving.launch.agreement.records import (
    VERSION,
    Decision,
    DecisionKind,
    Failure,
    Joined,
    Name,
    RankStage,
    RankState,
    document,
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
from speclaunch.serving.launch.guard import marked, parents_by_pid

_TEMPORARY = ".tmp-"
_MAX_BYTES = 1 << 20
_FILE_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO})
"""Errors that concern one file, not the directory."""
_LINKS = "choose a directory on a file system with hard links (NFS, Lustre, a local disk)"
_HELP = {
    errno.ENOSPC: "free some space on its disk",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EROFS: "mount its file system writable",
    errno.EACCES: "give this user write access",
    errno.EPERM: _LINKS,
    errno.ENOTSUP: _LINKS,
    errno.ESTALE: "mount its file system again",
}


class StoreError(Exception):
    """Failure to read or write the shared directory. `help`: the remedy."""

    def __init__(self, what: str, error: OSError, path: Path) -> None:
        reason = error.strerror or str(error)
        super().__init__(f"cannot {what} {path}: {reason}")
        self.help = _HELP.get(error.errno or 0, "check that it is mounted on every host")


class RecordError(Exception):
    """Invalid record in the shared directory. The message names its path and the reason."""


class DirectoryStore:
    """A directory that ranks share. Its methods may raise StoreError."""

    def __init__(self, path: Path, owner: str) -> None:
        """`owner`: prefix for the names of this rank's unfinished files."""
        self._path, self._owner = path, owner

    def create(self, name: str, data: bytes) -> bool:
        """Create a file unless it exists; return True if this call created it."""
        temporary = self._written(data)
        try:
            try:
                os.link(temporary, self._path / name)
            except OSError as error:
                if temporary.stat().st_nlink == 2:
                    return True  # it succeeded, and the answer was lost
                if error.errno == errno.EEXIST:
                    return False
                raise
            return True
        except OSError as error:
            raise StoreError("create a file in", error, self._path) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def overwrite(self, name: str, data: bytes) -> None:
        """Overwrite a file that only this rank writes. All its versions must have the same length.

        Writes in place, because on NFS other hosts may see the old content of a replaced file for
        a minute. This also works on a full disk, because the blocks already exist.
        """
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._path / name, flags, 0o600)
            try:
                os.pwrite(fd, data, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreError("write to", error, self._path) from error

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if missing. Raises RecordError if it is unreadable."""
        path = self._path / name
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(path, flags), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise RecordError(f"{path} is not a regular file")
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _FILE_ERRORS:
                raise RecordError(f"cannot read {path}: {error.strerror}") from None
            raise StoreError("read", error, self._path) from error
        if len(data) > _MAX_BYTES:
            raise RecordError(f"{path} is larger than {_MAX_BYTES >> 20} MiB")
        return data

    def names(self) -> list[str]:
        """Return the names of all files except unfinished ones."""
        try:
            names = os.listdir(self._path)  # noqa: PTH208 - only names are needed
            return [name for name in names if not name.startswith(_TEMPORARY)]
        except OSError as error:
            raise StoreError("list", error, self._path) from error

    def sweep(self, owner: str) -> None:
        """Remove unfinished files whose owner's name begins with `owner`."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._path):  # noqa: PTH208
                if name.startswith(f"{_TEMPORARY}{owner}"):
                    (self._path / name).unlink(missing_ok=True)

    def _written(self, data: bytes) -> Path:
        """Write `data` to a new file, sync the file to disk, and return its path."""
        path = self._path / f"{_TEMPORARY}{self._owner}-{uuid.uuid4().hex[:12]}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())  # reports a full disk of a server at the latest here
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink()
                raise
        except OSError as error:
            raise StoreError("write to", error, self._path) from error
        return path


def make_directory(path: Path) -> None:
    """Create the directory and its parents, accessible to this user only. Raises StoreError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError("create", error, path) from error


MARK = "SPECLAUNCH_RANK"
"""Environment variable that identifies all engine processes started by one life of a rank."""


def process_space() -> str:
    """Return the scope in which a process id is unique: boot id and process namespace. Empty if
    unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def is_gone(joined: Joined) -> bool:
    """True if the joined life has no process left. False if unknown; the lease then decides."""
    if not joined.space or joined.space != process_space() or joined.pid <= 0 or not joined.mark:
        return False
    return joined.pid not in parents_by_pid() and not marked(joined.mark, MARK)


_LENGTH = 16384
"""Length in bytes of every file of known good settings; each write overwrites the previous
content."""


def memory_key(keys: Mapping[str, str]) -> str:
    """Return the key of known good settings. `keys`: `journal.settings_key` of each server."""
    return hashlib.sha256(json.dumps(dict(keys), sort_keys=True).encode()).hexdigest()[:32]


class SharedMemory:
    """Directory with one file of known good settings for each launch key.

    Access may fail; the ranks then walk the recovery ladder again. A file read during a write is
    invalid and counts as absent.
    """

    def __init__(self, directory: Path, open_store: Callable[[Path, str], DirectoryStore]) -> None:
        self._directory, self._open = directory, open_store

    def recall(self, key: str | None) -> Mapping[str, Mapping[str, Any]] | None:
        """Return the stored changes of each server; None if there are none."""
        if key is None:
            return None
        try:
            data = self._store.read(f"{key}.json") or b""
            return convert(document(data).get("parts"), dict[str, dict[str, Any]])
        except (StoreError, RecordError, ValueError):
            return None

    def remember(self, key: str | None, decision: Decision) -> None:
        """Store a decision's settings after all ranks served with them."""
        self._write(key, {name: dict(part.changes) for name, part in decision.parts.items()})

    def forget(self, key: str | None, decision: Decision) -> None:
        """Drop the stored settings if they are the decision's: memory ran out with them."""
        failed = {name: dict(part.changes) for name, part in decision.parts.items()}
        if key is not None and self.recall(key) == failed:
            self._write(key, {name: {} for name in failed})

    def _write(self, key: str | None, parts: Mapping[str, Any]) -> None:
        text = json.dumps({"version": VERSION, "parts": parts}, sort_keys=True, default=str)
        if key is None or len(text) >= _LENGTH:
            return
        try:
            make_directory(self._directory)
            self._store.overwrite(f"{key}.json", text.ljust(_LENGTH - 1).encode() + b"\n")
        except StoreError:
            return

    @property
    def _store(self) -> DirectoryStore:
        return self._open(self._directory, "memory")


OpenStore = Callable[[Path, str], DirectoryStore]
_SLACK = 1.25
_SLACK_SECONDS = 2.0
"""Extra seconds that other ranks wait before a lease counts as expired, so that the holder's engine
can be killed first."""
_TRIES = 100
_LEASES, _LEASE_SECONDS = 10, 60.0
"""Longest accepted lease of another rank: `_LEASES` times this rank's lease, but at least
`_LEASE_SECONDS`. This rank could not wait for a longer lease to expire."""
_NEW_JOB = "end this launch on every host, and start it with another launch.agreement.job"


class Membership:
    """One life of a rank, from `join` on. Retry a method that raises StoreError."""

    def __init__(
        self,
        job: Path,
        joined: Joined,
        world: Iterable[str],
        clock: Callable[[], float],
        open_store: OpenStore = DirectoryStore,
    ) -> None:
        """`join` sets `joined.name.life`. `world`: server names. `clock`: monotonic seconds."""
        self._job, self._clock, self._open = job, clock, open_store
        self._world = tuple(world)
        self._memory = SharedMemory(job.parent / "last-good", open_store)
        self.joined = joined
        self.generation = 0
        self.joined_at = -1
        self._store: DirectoryStore
        """Files of the joined generation (one run of the job on all ranks), set by `join`."""
        self._former: DirectoryStore | None = None
        self._immutable: dict[str, Joined | Decision | Failure | None] = {}
        self._beats: dict[tuple[bool, Name], tuple[int, float]] = {}
        self._states: dict[tuple[bool, Name], RankState] = {}
        self._gone: set[tuple[bool, Name]] = set()
        self._suspects: set[Name] = set()
        self._unreadable: dict[str, str] = {}

    def join(self) -> View:
        """Join the newest generation, or start a new one if it has ended; return the view."""
        make_directory(self._job)
        owner = f"{self.joined.name.member}-{self.joined.mark}"
        root = self._open(self._job, owner)
        found = generations(root.names())
        number = self.generation = found[-1] if found else 1
        if found:
            newest = self._open(generation_directory(self._job, number), owner)
            decisions, _ = self._decisions(newest, newest.names())
            self._immutable.clear()
            self._unreadable.clear()
            number += bool(decisions) and decisions[-1].end
        make_directory(generation_directory(self._job, number))
        self.generation = number
        self._store = self._open(generation_directory(self._job, number), owner)
        if number - 1 in found:
            self._former = self._open(generation_directory(self._job, number - 1), owner)
        self._store.sweep(f"{self.joined.name.member}-")  # of earlier lives
        self._take_life()
        view = self.read_view()
        first = self.joined.name.life == 1  # the first decision included it
        self.joined_at = view.decisions[-1].epoch if view.decisions and not first else -1
        return view

    def beat(self, state: RankState) -> None:
        """Write this rank's state, which also proves that it is alive."""
        self._store.overwrite(life_file("beat", self.joined.name), dump_state(state))

    def create(self, file: str, data: bytes) -> bool:
        return self._store.create(file, data)

    def read_view(self) -> View:
        store = self._store
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
            known_good=(None if decisions else self._memory.recall(self._memory_key(self._world))),
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
        """Update the known good settings after this rank created `file`."""
        found = read_epoch(file)
        if found is None:
            return
        kind, epoch = found
        decisions, _ = self._decisions(self._store, self._store.names())
        before = decisions[epoch - 1] if 0 < epoch <= len(decisions) else None
        if kind == "served" and epoch < len(decisions):
            self._memory.remember(self._memory_key(decisions[epoch].parts), decisions[epoch])
        after = decisions[epoch] if kind == "epoch" and epoch < len(decisions) else None
        if before is not None and after is not None and after.kind is DecisionKind.MEMORY:
            self._memory.forget(self._memory_key(before.parts), before)

    def _memory_key(self, parts: Iterable[str]) -> str | None:
        """Return the key of known good settings; None until every server in `parts` has joined."""
        keys = {self.joined.name.part: self.joined.key}
        for record in self._immutable.values():
            if isinstance(record, Joined):
                keys.setdefault(record.name.part, record.key)
        return memory_key(keys) if set(keys) >= set(parts) else None

    def _take_life(self) -> None:
        name = self.joined.name
        lives = [found[1] for file in self._store.names() if (found := read_life(file))]
        number = max((other.life for other in lives if other.member == name.member), default=0)
        for life in range(number + 1, number + _TRIES):
            self.joined = replace(self.joined, name=replace(name, life=life))
            if self._store.create(life_file("life", self.joined.name), dump(self.joined)):
                return
        raise AssertionError(name)  # a hundred joined at the same time

    def _decisions(
        self, store: DirectoryStore, names: list[str]
    ) -> tuple[tuple[Decision, ...], str]:
        """Return the decisions before the first missing or invalid decision, and the problem with
        that decision (empty if there is none)."""
        found: list[Decision] = []
        for epoch in sorted(epoch for kind, epoch in _epochs(names) if kind == "epoch"):
            name = epoch_file("epoch", len(found))
            decision = self._once(store, name, load_decision) if epoch == len(found) else None
            if not isinstance(decision, Decision):
                path = self._key(name)
                return tuple(found), self._unreadable.get(path, f"{path} is missing")
            found.append(decision)
        return tuple(found), ""

    def _peers(self, store: DirectoryStore, names: list[str], *, former: bool) -> list[Peer]:
        lives = [life for name in names if (life := read_life(name)) is not None]
        gone = {name for kind, name in lives if kind == "gone"}
        peers = []
        for kind, name in lives:
            if kind != "life" or (name == self.joined.name and not former):
                continue
            found = self._once(store, life_file("life", name), load_joined, former=former)
            # if its record is unreadable, assume that it runs an engine
            valid = isinstance(found, Joined)
            lease = self.joined.lease_seconds
            joined = found if isinstance(found, Joined) else Joined(name, "", lease_seconds=lease)
            key = (former, joined.name)
            if name in gone:
                self._gone.add(key)
            if key not in self._gone:
                self._read_state(store, joined, key)
            peers.append(
                Peer(joined, self._states.get(key), key in self._gone, former or not valid)
            )
        return peers

    def _former_peers(self, store: DirectoryStore) -> list[Peer]:
        peers = [peer for peer in self._peers(store, store.names(), former=True) if not peer.gone]
        if not peers:
            self._former = None
        return peers

    def _read_state(self, store: DirectoryStore, joined: Joined, key: tuple[bool, Name]) -> None:
        """Read a life's state; record the life as gone if it left, ended here, or was silent beyond
        its lease."""
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
        """True if two checks found no process of this earlier life on this host.

        The engine's guard has time to end between the checks.
        """
        if not is_gone(joined):
            self._suspects.discard(joined.name)
            return False
        if joined.name in self._suspects:
            return True
        self._suspects.add(joined.name)
        return False

    def _once(
        self,
        store: DirectoryStore,
        file: str,
        load: Callable[[bytes], Joined | Decision | Failure | None],
        *,
        former: bool = False,
    ) -> Joined | Decision | Failure | None:
        """Return the record in a file that never changes; None if it is missing or invalid. A valid
        file is read only once."""
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
        return str(generation_directory(self._job, self.generation - former) / file)

    def _fits(self, found: Joined | Decision | Failure, file: str) -> bool:
        """True if a record matches its file name and this launch."""
        if isinstance(found, Joined):
            longest = max(_LEASES * self.joined.lease_seconds, _LEASE_SECONDS)
            return life_file("life", found.name) == file and found.lease_seconds <= longest
        if isinstance(found, Decision):
            return epoch_file("epoch", found.epoch) == file and set(found.parts) == set(self._world)
        return failed_file(found.epoch, found.name) == file


def _epochs(names: list[str]) -> list[tuple[str, int]]:
    return [found for name in names if (found := read_epoch(name)) is not None]
