"""What is compared: the baseline without speculation, the key that is asked for, what is refused."""

from __future__ import annotations

import pytest

from speclaunch.app.verbs.bench_sides import memory_warnings
from speclaunch.checks.rules.examine import Lookup
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.find_recipe import split_recipe
from speclaunch.deployments.recipe.load import load
from speclaunch.engine.facts.hardware import declare
from speclaunch.measure.bench.sides import (
    NONE,
    LaunchedSide,
    SideOptions,
    baseline,
    candidate,
    server,
)
from tests.support.loops import rows

ASKED = SideOptions((), "0.5.23", Lookup(), dry_run=True)


def test_the_baseline_is_the_same_without_speculation() -> None:
    words = ["recipe=eagle3_llama8b", "args.mem_fraction_static=0.6"]
    ours = candidate(words, ASKED)
    plain = baseline(NONE, words, ours, ASKED)
    assert (ours.expected.speculates, ours.expected.drafts) == (True, 16)
    assert not plain.expected.speculates
    assert plain.name == plain.expected.name == "eagle3_llama8b without speculation"
    names = {one.name for one in plain.prepared.rendered_args.arguments}
    assert "mem_fraction_static" in names
    assert not any(name.startswith("speculative_") for name in names)


def test_an_engine_is_launched_on_its_port_and_left_in_peace() -> None:
    order = candidate(["recipe=eagle3_llama8b"], ASKED).order(31000)
    assert order.words[0] == "recipe=eagle3_llama8b"
    assert "args.port=31000" in order.words
    assert "launch.watchdog.enabled=false" in order.words
    assert (order.url, order.key) == (None, "")


@pytest.mark.thorough
@pytest.mark.parametrize("word", ["args.port=30020", "++args.port=30020", "~args.port"])
def test_a_port_of_the_command_line_gives_way_to_that_of_the_measurement(word: str) -> None:
    words = ["recipe=eagle3_llama8b", word, "launch.restart.policy=auto"]
    ours = candidate(words, ASKED)
    assert ours.replaced == tuple(words[1:])
    order = ours.order(31000)
    assert [one for one in order.words if "port" in one] == ["args.port=31000"]
    name, overrides = split_recipe([one for one in order.words if not one.startswith("--")])
    assert load(name, overrides, ()).deployment.args["port"] == 31000
    plain = baseline(NONE, words, ours, ASKED)
    assert [one for one in plain.order(31001).words if "port" in one] == ["args.port=31001"]


@pytest.mark.thorough
def test_the_baseline_takes_no_override_of_speculation() -> None:
    words = ["recipe=eagle3_llama8b", "args.speculative_num_steps=5", "++args.tp_size=2"]
    plain = baseline(NONE, words, candidate(words, ASKED), ASKED)
    assert not plain.expected.speculates and plain.prepared.rendered_args.value("tp_size") == "2"
    assert "args.speculative_num_steps=null" in plain.words


def test_the_key_of_the_engine_reaches_who_asks_it() -> None:
    ours = candidate(["recipe=eagle3_llama8b", "+args.api_key=secret-key"], ASKED)
    assert ours.environment["OPENAI_API_KEY"] == ours.order(1).key == "secret-key"


@rows(
    "words, against, said",
    [
        (["recipe=eagle3_llama8b"], "foo", "unknown baseline"),
        (["recipe=eagle3_llama8b"], "engine=", "unknown baseline"),
        (["recipe=eagle3_llama8b"], "url=", "unknown baseline"),
        (["recipe=eagle3_llama8b"], "url=host:1", "not the address"),
        (["recipe=eagle3_llama8b", "args.speculative_algorithm=null"], NONE, "does not speculate"),
        (["recipe=pd_mtp_deepseek_v3"], NONE, "several roles"),
        (["recipe=eagle3_llama8b", "+args.ssl_certfile=/c.pem"], NONE, "TLS"),
    ],
)
def test_what_cannot_be_compared_is_refused(words: list[str], against: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        baseline(against, words, candidate(words, ASKED), ASKED)
    assert said in raised.value.problems[0].message


@pytest.mark.parametrize("against", ["none", "engine=0.5.18"])
def test_a_server_is_not_started_in_another_way(against: str) -> None:
    with pytest.raises(InputError, match="cannot be restarted"):
        baseline(against, [], server("http://127.0.0.1:1", ASKED), ASKED)


def test_a_server_against_itself_has_two_names() -> None:
    one = server("http://127.0.0.1:1", ASKED)
    other = baseline("url=http://127.0.0.1:1", [], one, ASKED)
    assert other.name == other.expected.name == "127.0.0.1:1 (url=http://127.0.0.1:1)"
    assert isinstance(baseline("recipe=eagle3_llama8b", [], one, ASKED), LaunchedSide)


@pytest.mark.thorough
def test_what_decides_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["recipe=eagle3_llama8b", "+args.api_key=secret-key"]
    plain = candidate(words, ASKED).identity
    assert "secret-key" not in str(plain)
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "1.0")
    made_up = candidate(words, ASKED)
    assert made_up.expected.simulated == "SGLANG_SIMULATE_ACC_LEN"
    assert made_up.identity != plain
    without = baseline(NONE, words, made_up, ASKED)
    assert without.expected.simulated is None  # nothing there to be made up
    own = candidate([*words, "+engine.env.SGLANG_SIMULATE_ACC_LEN=2"], ASKED)
    assert own.identity not in (plain, made_up.identity)


def test_another_recipe_and_the_same_on_another_engine() -> None:
    words = ["recipe=eagle3_llama8b"]
    ours = candidate(words, ASKED)
    other = baseline("recipe=eagle2_llama2_7b args.dtype=float16", words, ours, ASKED)
    assert other.name == "eagle2_llama2_7b"
    older = baseline("engine=0.5.18", words, ours, ASKED)
    assert (older.prepared.version, older.name) == ("0.5.18", "eagle3_llama8b (engine=0.5.18)")


def test_a_side_that_is_tight_or_does_not_fit_is_a_warning_beforehand() -> None:
    words = ["recipe=ngram_qwen7b", "args.mem_fraction_static=0.93"]
    asked = SideOptions((), None, Lookup(hardware=declare("rtx4090")), dry_run=True)
    one = candidate(words, asked)
    said = list(memory_warnings([one]))
    assert len(said) == 1 and said[0].startswith("ngram_qwen7b is tight: ")
    assert not list(memory_warnings([candidate(["recipe=ngram_qwen7b"], asked)]))
