"""The rules of the agreement, tried in every order: no two engines of different settings at once.

A rank's step is cut where another one may come between: it looks (its snapshot may be old when it
acts), acts, ends its engine. Ranks are killed, come back in a new life, and are cut off from the
directory; a rank that is cut off counts as gone for the others only when its engine has been ended,
which is what its guard does when the lease has run out (`tests/serving/launch/agreement/test_lease.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.serving.launch.agreement import protocol
from speclaunch.serving.launch.agreement.protocol import (
    Action,
    Adopt,
    AskLadder,
    Decide,
    Ended,
    Lost,
    Mine,
    Peer,
    StartEngine,
    View,
    Wait,
    absent,
    act,
    ended,
    merged,
    others_serve,
)
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

WORLD = {"server": 2}


class Life(Struct, frozen=True):
    """A process of speclaunch."""

    mine: Mine
    seen: View
    engine: Any = None
    """The settings that its engine runs with."""
    alive: bool = True
    cut_off: bool = False
    """It neither reads nor writes; its engine may still run."""
    gone: bool = False
    """The others have seen that it is gone."""
    left: bool = False


class Cluster(Struct, frozen=True):
    """The directory, the processes, and what may still happen to them."""

    decisions: tuple[Decision, ...] = ()
    states: tuple[tuple[Name, RankState], ...] = ()
    failures: tuple[Failure, ...] = ()
    lives: tuple[Life, ...] = ()
    kills: int = 1
    cuts: int = 1
    failing: int = 2
    """How many engines may still fail for memory."""
    crashes: int = 1


def setting(decision: Decision, part: str) -> tuple[tuple[str, Any], ...]:
    return (*sorted(decision.parts[part].changes.items()), decision.parts[part].since)


def view_of(cluster: Cluster, me: Life) -> View:
    """What that life sees now."""
    states = dict(cluster.states)
    peers = tuple(
        Peer(
            one.mine.joined,
            states.get(one.mine.name),
            one.gone or states.get(one.mine.name, RankState()).stage is RankStage.LEFT,
        )
        for one in cluster.lives
        if one.mine.name != me.mine.name
    )
    later = any(
        peer.joined.name.member == me.mine.name.member and peer.joined.name.life > me.mine.name.life
        for peer in peers
    )
    return View(cluster.decisions, peers, cluster.failures, fenced=later)


def with_life(cluster: Cluster, index: int, life: Life, **changes: Any) -> Cluster:
    lives = (*cluster.lives[:index], life, *cluster.lives[index + 1 :])
    return replace(cluster, lives=lives, **changes)


def with_state(
    cluster: Cluster, life: Life, stage: RankStage
) -> tuple[tuple[Name, RankState], ...]:
    state = RankState(0, life.mine.epoch, stage, life.mine.engine)
    others = [one for one in cluster.states if one[0] != life.mine.name]
    return tuple(sorted([*others, (life.mine.name, state)], key=lambda one: str(one[0])))


def moves(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    """Everything that can happen next."""
    for index, life in enumerate(cluster.lives):
        name = life.mine.name
        if life.alive and not life.cut_off and not life.left:
            seen = view_of(cluster, life)
            if seen != life.seen:
                yield f"{name} looks", with_life(cluster, index, replace(life, seen=seen))
            for variant in variants(life):
                for what, after in done(cluster, index, life, act(*variant)):
                    yield f"{name} {what}", after
            if life.engine is not None:
                yield from ends(cluster, index, life)
        if life.alive and cluster.cuts and not life.cut_off:
            cut = replace(life, cut_off=True)
            yield f"{name} is cut off", with_life(cluster, index, cut, cuts=cluster.cuts - 1)
        if life.alive and cluster.kills:
            dead = replace(life, alive=False)
            yield f"{name} is killed", with_life(cluster, index, dead, kills=cluster.kills - 1)
        if (not life.alive or life.cut_off) and not life.gone:
            if life.engine is not None:  # its guard ends it; the lease is out for others later
                yield f"guard of {name}", with_life(cluster, index, replace(life, engine=None))
            elif not life.alive or life.left:
                yield f"{name} is gone", with_life(cluster, index, replace(life, gone=True))
            else:
                out = replace(life, gone=True, left=True)
                yield f"{name} has lost its lease", with_life(cluster, index, out)
        newest = max(
            one.mine.name.life for one in cluster.lives if one.mine.name.member == name.member
        )
        if (
            (not life.alive or life.left)
            and name.life == newest
            and newest < 3
            and not over(cluster)
        ):
            yield f"{name} comes back", came_back(cluster, life)


def over(cluster: Cluster) -> bool:
    return bool(cluster.decisions) and cluster.decisions[-1].end


def variants(life: Life) -> Iterator[tuple[Mine, View]]:
    """With and without the time that may have passed."""
    late = (False, True) if absent(life.mine, life.seen) else (False,)
    for settled, overdue in product((False, True), late):
        yield replace(life.mine, settled=settled), replace(life.seen, overdue=overdue)


def came_back(cluster: Cluster, before: Life) -> Cluster:
    name = replace(before.mine.name, life=before.mine.name.life + 1)
    at = cluster.decisions[-1].epoch if cluster.decisions else -1
    life = Life(Mine(Joined(name, "k"), WORLD, at, max_returns=2, max_attempts=3), View())
    life = replace(life, seen=view_of(cluster, life))
    grown = replace(cluster, lives=(*cluster.lives, life))
    return replace(grown, states=with_state(grown, life, RankStage.WAITING))


def done(cluster: Cluster, index: int, life: Life, action: Action) -> Iterator[tuple[str, Cluster]]:
    if isinstance(action, Adopt) and life.mine.epoch < action.decision.epoch:
        if action.stop and life.engine is not None:
            yield "stops", with_life(cluster, index, replace(life, engine=None))
            return
        engine = -1 if life.engine is None else life.mine.engine
        mine = replace(life.mine, epoch=action.decision.epoch, engine=engine)
        adopted = replace(life, mine=mine)
        after = with_life(cluster, index, adopted)
        yield "adopts", replace(after, states=with_state(after, adopted, RankStage.WAITING))
    elif isinstance(action, StartEngine) and life.engine is None:
        part = action.decision.parts[life.mine.name.part]
        mine = replace(life.mine, engine=part.since)
        runs = replace(life, mine=mine, engine=setting(action.decision, life.mine.name.part))
        yield "runs", with_life(cluster, index, runs)
    elif isinstance(action, Decide | AskLadder):
        decision = action.decision if isinstance(action, Decide) else step(life.mine, action)
        if decision.epoch == len(cluster.decisions):
            yield (
                f"decides {decision.kind}",
                replace(cluster, decisions=(*cluster.decisions, decision)),
            )
    elif isinstance(action, Ended | Lost):
        if life.engine is not None:
            yield "stops", with_life(cluster, index, replace(life, engine=None))
        else:
            left = replace(life, left=True)
            after = with_life(cluster, index, left)
            yield "leaves", replace(after, states=with_state(after, left, RankStage.LEFT))


def step(mine: Mine, action: AskLadder) -> Decision:
    """A ladder whose step tells who made it: two ranks never have the same one by chance."""
    after = action.after
    if len(action.failures) > 2:
        return ended(mine, after, "no further rung")
    changes = {"mem_fraction_static": (after.epoch, str(mine.name))}
    parts = merged(after, mine.name.part, changes)
    return Decision(after.epoch + 1, DecisionKind.MEMORY, str(mine.name), parts)


def ends(cluster: Cluster, index: int, life: Life) -> Iterator[tuple[str, Cluster]]:
    """Its engine ends by itself, and it says why."""
    for memory, left in ((True, cluster.failing), (False, cluster.crashes)):
        if left:
            failure = Failure(life.mine.name, life.mine.engine, memory, "why")
            idle = replace(life, engine=None, mine=replace(life.mine, engine=-1))
            idle = replace(idle, seen=replace(idle.seen, failures=(*idle.seen.failures, failure)))
            counts = {"failing": left - 1} if memory else {"crashes": left - 1}
            after = with_life(cluster, index, idle, failures=(*cluster.failures, failure), **counts)
            yield f"engine of {life.mine.name} fails", after


def begin(**limits: int) -> Cluster:
    lives = tuple(
        Life(
            Mine(Joined(Name("server", rank, 1), "k"), WORLD, max_returns=2, max_attempts=3), View()
        )
        for rank in range(2)
    )
    cluster = Cluster(lives=lives, **limits)
    for life in lives:
        cluster = replace(cluster, states=with_state(cluster, life, RankStage.WAITING))
    return cluster


def split(cluster: Cluster) -> bool:
    """Whether engines of one server run with different settings, or two lives of a rank run one."""
    running = [one for one in cluster.lives if one.engine is not None]
    ranks = [one.mine.name.member for one in running]
    return len({one.engine for one in running}) > 1 or len(set(ranks)) < len(ranks)


def explore(start: Cluster, most: int) -> int:
    """Every state that can be reached, up to so many; the number."""
    known = {repr(start)}
    todo: list[tuple[Cluster, tuple[str, ...]]] = [(start, ())]
    while todo and len(known) < most:
        cluster, path = todo.pop()
        for what, after in moves(cluster):
            if (told := repr(after)) not in known:
                known.add(told)
                assert not split(after), [*path, what]
                todo.append((after, (*path, what)))
    return len(known)


LIMITS = (
    {"kills": 0, "cuts": 0, "failing": 2, "crashes": 0},
    {"kills": 0, "cuts": 1, "failing": 0, "crashes": 0},
    {"kills": 0, "cuts": 0, "failing": 1, "crashes": 1},
)


@pytest.mark.thorough
@pytest.mark.parametrize("limits", LIMITS, ids=lambda one: "-".join(n for n in one if one[n]))
def test_every_order_of_two_ranks(limits: dict[str, int]) -> None:
    assert explore(begin(**limits), 20_000) < 20_000  # all of them


@pytest.mark.thorough
@pytest.mark.parametrize(
    "limits",
    [
        {"kills": 0, "cuts": 1, "failing": 1, "crashes": 0},
        {"kills": 1, "cuts": 0, "failing": 0, "crashes": 0},
        {"kills": 1, "cuts": 1, "failing": 1, "crashes": 1},
    ],
    ids=["cut off", "killed", "everything"],
)
def test_many_orders_of_two_ranks(limits: dict[str, int]) -> None:
    assert explore(begin(**limits), 15_000) > 1000


def broken_start(mine: Mine, view: View, newest: Decision, missing: list[str]) -> Action:
    """A rank that does not wait for the others."""
    del mine, view, missing
    return StartEngine(newest)


def test_without_waiting_for_each_other_it_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: it does for rules that are wrong."""
    monkeypatch.setattr(protocol, "_start", broken_start)
    with pytest.raises(AssertionError, match="adopts"):
        explore(begin(**LIMITS[0]), 20_000)


def walk(seed: int) -> tuple[Cluster, list[str]]:
    """By chance, with all that can go wrong; then nothing goes wrong any more."""
    dice, path = random.Random(seed), []
    cluster = begin(kills=3, cuts=1, failing=3, crashes=dice.randint(0, 1))
    for _ in range(300):
        found = list(moves(cluster))
        if not found:
            break
        what, cluster = dice.choice(found)
        path.append(what)
        assert not split(cluster), (seed, path)
    cluster = replace(cluster, kills=0, cuts=0, failing=0, crashes=0)
    for _ in range(400):
        found = list(moves(cluster))
        if not found:
            break
        what, cluster = dice.choice(found)
        path.append(what)
        assert not split(cluster), (seed, path)
    return cluster, path


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 8))]
)
def test_by_chance_it_serves_together_or_ends(block: int) -> None:
    ends = set()
    for seed in range(block * 20, block * 20 + 20):
        cluster, path = walk(seed)
        running = [one for one in cluster.lives if one.engine is not None]
        ends.add(len(running))
        assert len(running) == 2 or over(cluster), (seed, path[-40:])
        if over(cluster):
            assert not running, (seed, path[-40:])
    # by chance the disks of a whole block may be too bad to serve on
    assert ends == {0, 2} if block == 0 else ends <= {0, 2}


def a_view(*, failures: tuple[Failure, ...] = (), state: RankState | None = None) -> View:
    part = PartSettings({"mem_fraction_static": 0.5}, 0)
    begun = Decision(0, DecisionKind.BEGIN, "server.0.1", {"server": part})
    peer = Peer(Joined(Name("server", 1, 1), "k"), state or RankState(1, 0), gone=False)
    return View((begun,), (peer,), failures)


MINE = Mine(Joined(Name("server", 0, 1), "k"), WORLD, epoch=0, engine=0)


def test_ranks_of_different_recipes_do_not_begin() -> None:
    peer = Peer(Joined(Name("server", 1, 1), "other"), RankState(1), gone=False)
    action = act(replace(MINE, epoch=-1, engine=-1), View(peers=(peer,)))
    assert isinstance(action, Decide) and action.decision.end
    assert "differ in recipe" in action.decision.why


def test_a_rank_that_never_comes_is_named() -> None:
    mine = replace(MINE, epoch=-1, engine=-1)
    waiting = act(mine, View())
    assert isinstance(waiting, Wait) and waiting.why == "waiting for server.1"
    action = act(mine, View(overdue=True))
    assert isinstance(action, Decide) and action.decision.why == "server.1 did not join"


def test_what_served_before_is_begun_with_unless_a_rank_shall_not() -> None:
    known = {"server": {"mem_fraction_static": 0.4}}
    mine = replace(MINE, epoch=-1, engine=-1)
    for fresh, expected in ((False, {"mem_fraction_static": 0.4}), (True, {})):
        peer = Peer(Joined(Name("server", 1, 1), "k", fresh=fresh), RankState(1), gone=False)
        action = act(mine, View(peers=(peer,), known_good=known))
        assert isinstance(action, Decide)
        assert action.decision.parts["server"].changes == expected


def test_a_crash_of_one_rank_is_told_and_not_that_another_lost_it() -> None:
    lost = Failure(MINE.name, 0, False, "Connection closed by peer", "rank-lost")
    crashed = Failure(Name("server", 1, 1), 0, False, "illegal access", "illegal-memory-access")
    action = act(MINE, a_view(failures=(lost, crashed)))
    assert isinstance(action, Decide)
    assert action.decision.why == "server.1: illegal access"
    assert action.decision.explanation == "server.0: Connection closed by peer"


def test_a_rank_that_lost_another_waits_for_what_that_one_says() -> None:
    lost = Failure(MINE.name, 0, False, "Connection closed by peer", "rank-lost")
    assert isinstance(act(MINE, a_view(failures=(lost,))), Wait)
    assert isinstance(act(replace(MINE, settled=True), a_view(failures=(lost,))), Decide)


def test_attempts_are_counted_over_all_ranks() -> None:
    part = PartSettings({}, 1)
    begun = Decision(0, DecisionKind.BEGIN, "server.0.1", {"server": PartSettings({}, 0)})
    stepped = Decision(1, DecisionKind.MEMORY, "server.1.1", {"server": part})
    failure = Failure(MINE.name, 1, True, "out of memory")
    view = replace(a_view(failures=(failure,)), decisions=(begun, stepped))
    mine = replace(MINE, epoch=1, engine=-1, max_attempts=2)
    action = act(mine, view)
    assert isinstance(action, Decide) and "made 2 attempts" in action.decision.explanation
    assert isinstance(act(replace(mine, max_attempts=3), view), AskLadder)
    assert isinstance(act(mine, replace(view, served=0)), AskLadder), "after it served, anew"


def test_prefill_and_decode_change_together_what_they_must_have_alike() -> None:
    parts = {
        "prefill": PartSettings({"mem_fraction_static": 0.8}, 0),
        "decode": PartSettings({}, 0),
    }
    begun = Decision(0, DecisionKind.BEGIN, "prefill.0.1", parts)
    tree = {"speculative_num_steps": 1, "speculative_num_draft_tokens": 2}
    found = merged(begun, "decode", {**tree, "max_running_requests": 4})
    assert found["decode"] == PartSettings({**tree, "max_running_requests": 4}, 1)
    assert found["prefill"] == PartSettings({"mem_fraction_static": 0.8, **tree}, 1)
    alone = merged(begun, "decode", {"mem_fraction_static": 0.5})
    assert alone["prefill"] == parts["prefill"], "an engine whose settings stay is not stopped"
    assert alone["decode"].since == 1


def test_they_serve_when_the_engines_of_all_do() -> None:
    for stage, expected in ((RankStage.SERVING, True), (RankStage.STARTING, False)):
        assert others_serve(a_view(state=RankState(1, 0, stage, 0)), MINE) is expected
