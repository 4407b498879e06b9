"""Next action of a rank, from its view of the others. Uses no file, clock or engine.

Settings change in epochs. The first rank to create an epoch's decision file makes its decision,
which never changes. A rank *adopts* a decision when it runs no engine of an older decision. It
starts an engine only after every other rank has adopted the decision or is gone
(`Peer.gone`). Two engines with different settings therefore never run at the same time.
`tests/serving/launch/agreement/test_protocol.py` tests the interleavings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.serving.launch.agreement.records import (
    Decision,
    DecisionKind,
    Failure,
    Joined,
    Name,
    PartSettings,
    RankStage,
    RankState,
)

AGREED = frozenset(
    {
        "kv_cache_dtype",
        "page_size",
        "speculative_algorithm",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_num_steps",
    }
)
"""Server arguments that must be equal for prefill and decode, because prefill sends the KV cache
and the draft's state to decode. Source: 0.5.23 disaggregation/common/conn.py (`Page size mismatch`,
`KV cache dtype mismatch`)."""


class Peer(Struct, frozen=True):
    """A joined life of another rank, or an earlier life of this rank."""

    joined: Joined
    state: RankState | None
    gone: bool
    """True if the peer runs no engine and will start none: it left, or its lease has expired."""
    former: bool = False
    """True for a peer of an earlier generation (run of the job), or with an invalid record."""


class View(Struct, frozen=True):
    """Content of the shared directory at one time. `peers` excludes this life of this rank."""

    decisions: tuple[Decision, ...] = ()
    peers: tuple[Peer, ...] = ()
    failures: tuple[Failure, ...] = ()
    served: int = -1
    """Newest epoch in which all ranks served; -1 if there is none."""
    known_good: Mapping[str, Mapping[str, Any]] | None = None
    """Known good changes of each server, read before the first decision; None if there are none."""
    fenced: bool = False
    """True if a later life of this rank has joined."""
    overdue: bool = False
    """True if a rank has been missing for longer than the timeout."""
    unreadable: tuple[str, ...] = ()
    """Messages about files that are ignored because they are not valid records."""
    damaged: str = ""
    """Reason why decisions, or this rank's failures, cannot be read; empty if they can."""
    stale: bool = False
    """True if decisions have been damaged for longer than a lease, so no late write can repair
    them."""


class Mine(Struct, frozen=True):
    """Launch and progress of this rank, as input for `act`."""

    joined: Joined
    world: Mapping[str, int]
    """Number of ranks of each server."""
    joined_at: int = -1
    """Newest epoch when this life of the rank joined; -1 for a first life, or if no epoch had
    begun."""
    epoch: int = -1
    engine: int = -1
    """Epoch for which this rank's engine was started; -1 without an engine."""
    settled: bool = False
    """True if this rank's engine ended so long ago that any rank that ran out of memory must have
    reported it."""
    max_attempts: int = 8
    max_returns: int = 8

    @property
    def name(self) -> Name:
        """Name under which this rank joined, new at each start."""
        return self.joined.name


class Wait(Struct, frozen=True):
    """No action yet. `why`: what this rank waits for, or empty."""

    why: str = ""


class Decide(Struct, frozen=True):
    """Request to make this decision unless its epoch already has a decision."""

    decision: Decision


class AskLadder(Struct, frozen=True):
    """Request to ask the recovery ladder for this server's next settings after `failures`."""

    after: Decision
    failures: tuple[Failure, ...]
    """One failure for each failed start of this rank's server, oldest first."""


class Adopt(Struct, frozen=True):
    """Request to adopt this decision, after stopping the running engine if `stop` is True."""

    decision: Decision
    stop: bool


class StartEngine(Struct, frozen=True):
    """Request to start an engine with the settings of this decision."""

    decision: Decision


class Ended(Struct, frozen=True):
    """Request to stop and leave, because this decision ends all ranks."""

    decision: Decision


class Lost(Struct, frozen=True):
    """Loss of the agreement: this rank must stop and not serve again."""

    why: str


Action = Wait | Decide | AskLadder | Adopt | StartEngine | Ended | Lost


def act(mine: Mine, view: View) -> Action:  # noqa: PLR0911 - the rules, in their order
    """Return this rank's next action, which depends only on `mine` and `view`."""
    if view.fenced:
        return Lost(f"another process has replaced {mine.name.member}")
    if view.damaged:
        return Lost(view.damaged) if view.stale else Wait(view.damaged)
    if not view.decisions:
        return _first(mine, view)
    newest = view.decisions[-1]
    if newest.end:
        return Ended(newest)
    if mine.joined_at == newest.epoch:
        return _return(mine, view, newest)
    part = newest.parts[mine.name.part]
    if mine.epoch < newest.epoch:
        return Adopt(newest, stop=-1 < mine.engine < part.since)
    if found := _after_failures(mine, view, newest):
        return found
    missing = absent(mine, view)
    if missing and view.overdue:
        return Decide(ended(mine, newest, f"{_and(missing)} did not rejoin"))
    if mine.engine >= 0:
        return Wait()
    return _start(mine, view, newest, missing)


def merged(decision: Decision, part: str, changes: Mapping[str, Any]) -> dict[str, PartSettings]:
    """Return each server's settings in the decision after `decision`: server `part` gets `changes`,
    and the other servers get the `AGREED` settings among them."""
    epoch = decision.epoch + 1
    agreed = {name: value for name, value in changes.items() if name in AGREED}
    parts = {}
    for name, current in decision.parts.items():
        settings = dict(changes) if name == part else {**current.changes, **agreed}
        same = name != part and settings == dict(current.changes)
        parts[name] = current if same else PartSettings(settings, epoch)
    return parts


def ended(
    mine: Mine,
    newest: Decision | None,
    why: str,
    *,
    ending: str = "failed",
    explanation: str = "",
    advice: str = "",
) -> Decision:
    """Return a decision to end all ranks. `ending`: `failed` or `stopped`. `advice`: the remedy."""
    epoch = 0 if newest is None else newest.epoch + 1
    parts = {part: PartSettings({}, 0) for part in mine.world} if newest is None else newest.parts
    return Decision(
        epoch, DecisionKind.END, str(mine.name), parts, why, None, ending, explanation, advice
    )


def others_serve(view: View, mine: Mine) -> bool:
    """True if the engines of all other ranks serve with the newest settings, and this rank's engine
    runs with them."""
    newest = view.decisions[-1] if view.decisions else None
    if newest is None or newest.end or mine.engine != newest.parts[mine.name.part].since:
        return False
    found = {peer.joined.name.member for peer in view.peers if _serves(peer, newest)}
    return found >= set(_members(mine)) - {mine.name.member}


def _serves(peer: Peer, newest: Decision) -> bool:
    state, part = peer.state, newest.parts.get(peer.joined.name.part)
    if state is None or part is None or peer.gone or peer.former:
        return False
    return state.stage is RankStage.SERVING and state.engine == part.since


def _first(mine: Mine, view: View) -> Action:
    missing = absent(mine, view)
    if missing:
        if view.overdue:
            return Decide(ended(mine, None, f"{_and(missing)} did not join"))
        return Wait(f"waiting for {_and(missing)}")
    came = [mine.joined, *(peer.joined for peer in _newest(view.peers).values())]
    for part in mine.world:
        here = sorted(
            (joined for joined in came if joined.name.part == part),
            key=lambda joined: joined.name.rank,
        )
        for joined in here:
            if joined.key != here[0].key:
                members = f"{joined.name.member} and {here[0].name.member}"
                why = f"{members} differ in recipe, engine version or hardware"
                return Decide(ended(mine, None, why, advice="launch the same recipe on every host"))
    return Decide(_begin(mine, came, view.known_good))


def _begin(
    mine: Mine, came: Iterable[Joined], known: Mapping[str, Mapping[str, Any]] | None
) -> Decision:
    """Return the first decision: the known good settings or, without any, those of each server's
    first rank. If `AGREED` settings then differ between servers, all start from the recipe."""
    came, first, why = list(came), {}, ""
    for joined in sorted(came, key=lambda joined: -joined.name.rank):
        first[joined.name.part] = dict(joined.begin)
    fresh = any(joined.fresh for joined in came)
    if not fresh and known is not None and set(known) == set(mine.world):
        first = {part: dict(known[part]) for part in mine.world}
        why = "served before" if any(first.values()) else ""
    agreed = [{n: v for n, v in changes.items() if n in AGREED} for changes in first.values()]
    if any(values != agreed[0] for values in agreed):
        first, why = {part: {} for part in mine.world}, ""
    parts = {part: PartSettings(first.get(part, {}), 0) for part in mine.world}
    return Decision(0, DecisionKind.BEGIN, str(mine.name), parts, why)


def _return(mine: Mine, view: View, newest: Decision) -> Action:
    since = [decision for decision in view.decisions if decision.epoch > view.served]
    count = sum(decision.kind is DecisionKind.RETURN for decision in since)
    if count >= mine.max_returns:
        why = f"ranks were restarted {count} times without serving together"
        return Decide(ended(mine, newest, why))
    epoch = newest.epoch + 1
    parts = {
        name: PartSettings(settings.changes, epoch) if name == mine.name.part else settings
        for name, settings in newest.parts.items()
    }
    why = f"{mine.name.member} was restarted"
    return Decide(Decision(epoch, DecisionKind.RETURN, str(mine.name), parts, why))


def _after_failures(mine: Mine, view: View, newest: Decision) -> Action | None:
    now = [failure for failure in view.failures if _current(failure, newest)]
    memory = [failure for failure in now if failure.memory]
    if memory:
        return _after_memory(mine, view, newest, memory)
    if not any(failure.name == mine.name for failure in now):
        return None
    part = mine.name.part
    missing = [rank for rank in absent(mine, view) if rank.startswith(f"{part}.")]
    if missing and not view.overdue:
        return Wait(f"waiting for {_and(missing)}")
    reported = {failure.name for failure in now}
    running = [p for p in _newest(view.peers).values() if p.joined.name.part == part]
    if not mine.settled and any(p.joined.name not in reported and not p.gone for p in running):
        return Wait("waiting for the other ranks")
    reasons = [f"{failure.name.member}: {failure.why}" for failure in sorted(now, key=_clarity)]
    why = f"{_and(missing)} did not rejoin" if missing else reasons[0]
    return Decide(ended(mine, newest, why, explanation="; ".join(reasons[1:])))


def _after_memory(mine: Mine, view: View, newest: Decision, memory: list[Failure]) -> Action:
    own = [failure for failure in memory if failure.name == mine.name]
    gone = {str(p.joined.name) for p in view.peers if p.gone}
    abandoned = [
        failure
        for failure in memory
        if str(failure.name) in gone and failure.name.part == mine.name.part
    ]
    if not own and not (abandoned and len(abandoned) == len(memory)):
        if view.overdue:
            return Decide(ended(mine, newest, f"{memory[0].name.member}: {memory[0].why}"))
        return Wait(f"{memory[0].name.member} ran out of memory: waiting for its next settings")
    after = [decision for decision in view.decisions if decision.epoch > view.served]
    starts = sum(decision.kind in (DecisionKind.BEGIN, DecisionKind.MEMORY) for decision in after)
    if starts >= mine.max_attempts:
        failure = (own or abandoned)[0]
        why = f"the ranks made {starts} attempts, the limit of recovery.max_attempts"
        return Decide(ended(mine, newest, f"{failure.name.member}: {failure.why}", explanation=why))
    return AskLadder(newest, _history(view, mine.name.part, (own or abandoned)[0]))


def _history(view: View, part: str, last: Failure) -> tuple[Failure, ...]:
    """Return one memory failure per failed start of server `part`, from the oldest to `last`."""
    found: dict[int, Failure] = {}
    for failure in sorted(view.failures, key=lambda failure: str(failure.name), reverse=True):
        if failure.memory and failure.name.part == part:
            found[failure.epoch] = failure
    found[last.epoch] = last
    return tuple(found[epoch] for epoch in sorted(found))


def _start(mine: Mine, view: View, newest: Decision, missing: list[str]) -> Action:
    part = newest.parts[mine.name.part]
    if away := [rank for rank in missing if rank.startswith(f"{mine.name.part}.")]:
        return Wait(f"waiting for {_and(away)}")
    behind = sorted({p.joined.name.member for p in view.peers if not _follows(p, part.since)})
    if behind:
        return Wait(f"waiting for {_and(behind)} to adopt the new settings")
    return StartEngine(newest)


def _follows(peer: Peer, since: int) -> bool:
    if peer.gone:
        return True
    return not peer.former and peer.state is not None and peer.state.epoch >= since


def _current(failure: Failure, newest: Decision) -> bool:
    part = newest.parts.get(failure.name.part)
    return part is not None and failure.epoch == part.since


def absent(mine: Mine, view: View) -> list[str]:
    """Return the names of the other ranks that have not joined or are gone."""
    here = {name for name, peer in _newest(view.peers).items() if not peer.gone}
    return [rank for rank in _members(mine) if rank not in here | {mine.name.member}]


def _newest(peers: Iterable[Peer]) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    for peer in sorted(peers, key=lambda peer: peer.joined.name.life):
        if not peer.former:
            found[peer.joined.name.member] = peer
    return found


def _members(mine: Mine) -> list[str]:
    return [f"{part}.{rank}" for part, size in mine.world.items() for rank in range(size)]


def _clarity(failure: Failure) -> tuple[bool, bool, str]:
    """Return a sort key that puts known causes first, with the loss of a rank last among them."""
    return (not failure.cause, failure.cause == "rank-lost", str(failure.name))


def _and(names: Iterable[str]) -> str:
    return ", ".join(names)
