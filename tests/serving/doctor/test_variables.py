"""Environment variables and proxies."""

from __future__ import annotations

import shlex

from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.serving.doctor.checks.environment import check_proxy, check_variables
from speclaunch.serving.doctor.facts import CheckLine, CheckState, Port
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import machine, only, runtime, said, target


def lines(version: str = "0.5.23", **env: str) -> list[CheckLine]:
    return said(check_variables, machine(env=env, runtime=runtime(version)))


def test_none_is_set() -> None:
    (line,) = lines(PATH="/bin", HOME="/root", EDITOR="vi")
    assert (line.state, line.found) == (
        CheckState.OK,
        "no variables are set that affect the engine",
    )


def test_what_matters_is_listed() -> None:
    (line,) = lines(CUDA_VISIBLE_DEVICES="0,1", NCCL_P2P_DISABLE="1", HF_HUB_OFFLINE="1", A="b")
    assert line.state is CheckState.NOTE
    assert line.found == "CUDA_VISIBLE_DEVICES=0,1, HF_HUB_OFFLINE=1, NCCL_P2P_DISABLE=1"


def test_secrets_are_not_shown_and_long_values_are_cut() -> None:
    (line,) = lines(SGLANG_API_KEY="hunter2", NCCL_TOPO_FILE="x" * 500)[-1:]
    assert "hunter2" not in line.found
    assert "SGLANG_API_KEY=***" in line.found
    assert len(line.found) < 200


@rows(
    "version, name, state, words",
    [
        ("0.5.23", "SGLANG_LOGGING_CONFIG_PATH", None, ""),
        ("0.5.23", "SGLANG_ENABLE_SPECV2", CheckState.WARNING, "has no variable"),
        ("0.5.23", "SGLANG_ENABLE_SPEC_V2", CheckState.WARNING, "has no effect in SGLang 0.5.23"),
        ("0.5.7", "SGLANG_ENABLE_SPEC_V2", None, ""),
        ("0.5.23", "SGLANG_NO_SUCH_THING_AT_ALL_QQQ", CheckState.WARNING, "has no variable"),
    ],
)
def test_the_engines_own_variables(
    version: str, name: str, state: CheckState | None, words: str
) -> None:
    found = lines(version, **{name: "1"})
    wrong = [line for line in found if line.state is CheckState.WARNING]
    assert [line.state for line in wrong] == ([state] if state else [])
    assert not wrong or words in wrong[0].found
    assert any(name in line.found for line in found)


def test_a_misspelled_variable_is_told_the_right_one() -> None:
    name = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LENGTH"
    (line, _) = lines(**{name: "1"})
    assert line.fix == "did you mean SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN?"
    assert not line.command
    (other, _) = lines(SGLANG_QQQQQQ_ZZZZZ="1")
    assert (other.fix, other.command) == ("unset SGLANG_QQQQQQ_ZZZZZ", True)


def test_with_a_recipe_the_rules_judge_them() -> None:
    env = {"SGLANG_ENABLE_SPECV2": "1", "SGLANG_USE_CPU_ENGINE": "1"}
    aim = target(own_variables=frozenset({"SGLANG_USE_CPU_ENGINE"}))
    line = only(check_variables, machine(env=env, target=aim))
    assert (line.state, line.found) == (CheckState.NOTE, "SGLANG_ENABLE_SPECV2=1")


def test_without_an_engine_the_newest_release_judges() -> None:
    found = machine(runtime=UnknownFact("engine", "none"), env={"SGLANG_ENABLE_SPECV2": "1"})
    assert said(check_variables, found)[0].state is CheckState.WARNING
    odd = machine(runtime=runtime("0.1.0"), env={"SGLANG_ENABLE_SPECV2": "1"})
    assert said(check_variables, odd)[0].state is CheckState.WARNING


def test_kernels_that_are_waited_for() -> None:
    first = lines(CUDA_LAUNCH_BLOCKING="1")[0]
    assert (first.state, first.fix) == (CheckState.WARNING, "unset CUDA_LAUNCH_BLOCKING")
    assert [line.state for line in lines(CUDA_LAUNCH_BLOCKING="0")] == [CheckState.NOTE]


@rows(
    "env, host, state",
    [
        ({}, "127.0.0.1", None),
        ({"https_proxy": "http://p:1"}, "127.0.0.1", None),  # it is asked over http
        ({"http_proxy": "http://p:1"}, "127.0.0.1", CheckState.WARNING),
        ({"HTTP_PROXY": "http://p:1"}, "127.0.0.1", CheckState.WARNING),
        ({"all_proxy": "socks5://p:1"}, "127.0.0.1", CheckState.WARNING),
        ({"http_proxy": "http://p:1", "no_proxy": "localhost"}, "127.0.0.1", CheckState.WARNING),
        ({"http_proxy": "http://p:1", "no_proxy": "a, 127.0.0.1"}, "127.0.0.1", CheckState.OK),
        ({"http_proxy": "http://p:1", "NO_PROXY": "127.0.0.0/8"}, "127.0.0.1", CheckState.OK),
        ({"http_proxy": "http://p:1", "no_proxy": "*"}, "10.0.0.1", CheckState.OK),
        ({"http_proxy": "http://p:1", "no_proxy": ".cluster"}, "n1.cluster", CheckState.OK),
        ({"http_proxy": "http://p:1", "no_proxy": "127.0.0.1"}, "0.0.0.0", CheckState.WARNING),
        ({"http_proxy": "http://p:1", "no_proxy": "127.0.0.1,0.0.0.0"}, "0.0.0.0", CheckState.OK),
    ],
)
def test_the_engine_asks_itself_past_the_proxy(
    env: dict[str, str], host: str, state: CheckState | None
) -> None:
    found = said(check_proxy, machine(env=env, port=Port(host, 30000)))
    assert [line.state for line in found] == ([state] if state else [])


def test_the_remedy_keeps_what_no_proxy_had() -> None:
    env = {"http_proxy": "http://user:secret@p:1", "no_proxy": "a.b;rm -rf"}
    line = only(check_proxy, machine(env=env))
    assert line.command
    assert shlex.split(line.fix or "")[1] == "no_proxy=a.b;rm -rf,127.0.0.1"
    assert "secret" not in repr(line)
