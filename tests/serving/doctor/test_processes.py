"""Which processes are engines, and who looks after them."""

from __future__ import annotations

from typing import Any

from speclaunch.serving.doctor.checks.environment import check_engines, check_port
from speclaunch.serving.doctor.facts import CheckState, Port, Process
from speclaunch.serving.doctor.machine import Custody, engines, is_engine
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import machine, only, target

SERVER = ("python", "-m", "sglang.launch_server", "--model-path", "m", "--api-key", "hunter2")
INIT = Process(1, 0, "systemd", ("/sbin/init",), "root", session=1)


def process(pid: int, parent: int, *words: str, **more: Any) -> Process:
    more.setdefault("user", "me")
    return Process(
        pid, parent, more.pop("name", words[0][:15] if words else "python"), words, **more
    )


@rows(
    "words",
    [
        SERVER,
        ("/usr/bin/python3.12", "-u", "-m", "sglang.launch_server"),
        ("python", "-m", "sglang", "serve", "--model", "m"),
        ("python", "/env/bin/sglang", "serve", "m"),
        ("python3", "/src/sglang/launch_server.py"),
        ("/env/bin/sglang", "serve", "m"),
        ("sglang::scheduler_TP0",),
        ("sglang::detokenizer", "", ""),
    ],
)
def test_engines_are_known_by_their_command_line(words: tuple[str, ...]) -> None:
    assert is_engine(process(5, 1, *words))


@rows(
    "words",
    [
        (),
        ("bash", "-c", "python -m sglang.launch_server"),
        ("vim", "sglang.launch_server"),
        ("grep", "sglang::scheduler"),
        ("python", "-m", "sglang.bench_serving"),
        ("python", "-m", "sglang", "generate"),
        ("python", "/env/bin/sglang", "version"),
        ("/env/bin/sglang", "version"),
        ("speclaunch", "recipe=cpu_ngram"),
        ("python", "train.py"),
    ],
)
def test_what_only_mentions_one_is_none(words: tuple[str, ...]) -> None:
    assert not is_engine(process(5, 1, *words))


def custody(*table: Process) -> Custody:
    (tree,) = engines(table)
    return tree.custody


def test_a_scheduler_whose_parent_is_gone_was_left_over() -> None:
    assert custody(INIT, process(9, 1, "sglang::scheduler", session=7)) is Custody.LEFT_OVER


def test_a_server_that_outlived_its_session_was_left_over() -> None:
    assert custody(INIT, process(9, 1, *SERVER, session=7)) is Custody.LEFT_OVER
    user_manager = Process(20, 1, "systemd", ("systemd", "--user"), "me", session=20)
    assert custody(INIT, user_manager, process(9, 20, *SERVER, session=7)) is Custody.LEFT_OVER


def test_a_launch_of_speclaunch_that_was_killed_leaves_a_mark() -> None:
    marked = process(9, 1, *SERVER, session=9, run="abc")
    assert custody(INIT, marked) is Custody.LEFT_OVER


@rows(
    "table",
    [
        (INIT, process(9, 1, *SERVER, session=9)),  # a service, or setsid
        (process(1, 0, *SERVER, session=1),),  # a container's only process
        (Process(1, 0, "tini", ("tini", "--"), "me", session=1), process(9, 1, *SERVER, session=1)),
        (INIT, process(9, 0, *SERVER, session=9)),  # docker exec
    ],
)
def test_a_server_may_be_meant_to_run_by_itself(table: tuple[Process, ...]) -> None:
    assert custody(*table) is Custody.SERVICE


def test_a_server_with_a_parent_is_its_parents() -> None:
    shell = Process(8, 1, "bash", ("bash",), "me", session=8)
    assert custody(INIT, shell, process(9, 8, *SERVER, session=8)) is Custody.PARENT
    # one that we may not see is not one that is gone
    assert custody(INIT, process(9, 8, *SERVER, session=8)) is Custody.PARENT


def test_speclaunch_looks_after_its_own() -> None:
    own = Process(7, 5, "python", ("python", "-m", "speclaunch", "recipe=r"), "me")
    guard = Process(8, 7, "python", ("python", "-I", "/x/speclaunch/serving/launch/guard.py"), "me")
    server = process(9, 8, *SERVER, run="abc")
    child = process(10, 9, "sglang::scheduler")
    (tree,) = engines((INIT, own, guard, server, child))
    assert (tree.custody, tree.keeper) == (Custody.SPECLAUNCH, 7)
    assert [member.pid for member in tree.members] == [9, 10]


def test_two_engines_and_a_zombie() -> None:
    found = engines(
        (
            INIT,
            process(20, 1, "sglang::detokenizer", session=3),
            process(9, 1, *SERVER, session=9),
            process(30, 4, name="sglang::schedul", zombie=True),
        )
    )
    assert [(tree.root.pid, tree.custody) for tree in found] == [
        (9, Custody.SERVICE),
        (20, Custody.LEFT_OVER),
        (30, Custody.ZOMBIE),
    ]


def test_a_circle_of_parents_ends() -> None:
    (tree,) = engines((process(5, 6, *SERVER), process(6, 5, *SERVER)))[:1]
    assert tree.members


@rows(
    "words, ports, port",
    [
        (SERVER, (30000, 41234), 30000),
        (SERVER, (41234,), None),
        ((*SERVER, "--port", "31000"), (31000, 30000), 31000),
        ((*SERVER, "--port=31000"), (31000,), 31000),
        ((*SERVER, "--port", "$PORT"), (30000,), None),
    ],
)
def test_where_it_serves(words: tuple[str, ...], ports: tuple[int, ...], port: int | None) -> None:
    (tree,) = engines((INIT, process(9, 1, *words, ports=ports)))
    assert tree.port == port


# what is said of them


def test_no_engine() -> None:
    assert only(check_engines, machine()).found == "none running"


def test_a_leftover_is_ended_with_all_that_belongs_to_it() -> None:
    found = machine(
        processes=(
            INIT,
            process(9, 1, *SERVER, session=7, ports=(30000,), age_seconds=7300),
            process(10, 9, "sglang::scheduler", session=7),
        )
    )
    line = only(check_engines, found)
    assert line.state is CheckState.WARNING
    assert line.found == "processes 9, 10, serving on port 30000, for 2 h, left over"
    assert (line.fix, line.command) == ("kill 9 10", True)
    assert "hunter2" not in repr(line)


def test_anothers_leftover_is_his_to_end() -> None:
    found = machine(processes=(INIT, process(9, 1, "sglang::scheduler", session=7, user="bob")))
    line = only(check_engines, found)
    assert "process 9 of bob (sglang::scheduler)" in line.found
    assert (line.fix, line.command) == ("ask bob to end it", False)
    as_root = machine(processes=found.processes, user="root")
    assert only(check_engines, as_root).fix == "kill 9"


def test_a_zombie_is_its_parents_to_collect() -> None:
    zombie = process(30, 4, name="sglang::schedul", zombie=True)
    line = only(check_engines, machine(processes=(zombie,)))
    assert (line.state, line.fix) == (CheckState.NOTE, "end process 4, unless it is needed")
    of_init = process(30, 1, name="sglang::schedul", zombie=True)
    assert "--init" in (only(check_engines, machine(processes=(INIT, of_init))).fix or "")


def test_engines_that_are_looked_after_are_good_to_know() -> None:
    service = machine(processes=(INIT, process(9, 1, *SERVER, session=9)))
    line = only(check_engines, service)
    assert (line.state, line.fix, line.command) == (
        CheckState.NOTE,
        "if unused: kill 9",
        False,
    )


# the port


@rows(
    "port, aim, state, fix",
    [
        (Port("127.0.0.1", 30000), target(), CheckState.OK, None),
        (
            Port("127.0.0.1", 30000, "Address already in use", 77, 30001),
            target(),
            CheckState.ERROR,
            "choose another port: args.port=30001; or stop the process that holds it",
        ),
        (
            Port("127.0.0.1", 80, "Permission denied", None, 1024),
            target(),
            CheckState.ERROR,
            "choose another port: args.port=1024",
        ),
        (Port("10.9.8.7", 30000, "no such address"), target(), CheckState.ERROR, "args.host=…"),
        (Port("127.0.0.1", 30000, "Address already in use"), None, CheckState.NOTE, "args.host=…"),
    ],
)
def test_the_port(port: Port, aim: Any, state: CheckState, fix: str | None) -> None:
    line = only(check_port, machine(port=port, target=aim))
    assert line.state is state
    assert (fix or "") in (line.fix or "")


def test_a_port_that_a_leftover_engine_has() -> None:
    found = machine(
        port=Port("127.0.0.1", 30000, "Address already in use", 9, 30001),
        processes=(INIT, process(9, 1, *SERVER, session=7)),
        target=target(),
    )
    line = only(check_port, found)
    assert (line.fix, line.command) == ("kill 9", True)
