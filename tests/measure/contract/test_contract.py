"""Contracts of scripted servers: sound ones, and those that break a field."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaigns.contract import objections, sound, stored
from speclaunch.core.errors import LaunchError
from speclaunch.engine import Facts, resolve
from speclaunch.measure.prove.contract import FIELDS, ContractField, check_contract
from speclaunch.measure.prove.contract_fields import _agree
from speclaunch.measure.prove.contract_servers import (
    CONTRACT,
    ContractProgress,
    ContractServer,
    FieldResult,
    GreedyCase,
    Pair,
    StoredContract,
    same,
)
from speclaunch.serving import EngineError
from tests.measure.contract.test_known import plan
from tests.support.checks.rules.harness import request_of
from tests.support.measure.contract_faults import FIELD_FAULTS
from tests.support.measure.contract_server import FAULTS, Reply, ScriptedServer, pair
from tests.support.proof_faults import breakable_shim


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speclaunch.measure.prove.contract_servers._STARTED_SECONDS", 0.01)
    monkeypatch.setattr("speclaunch.measure.prove.contract_servers._RELEASE_SECONDS", 0.1)


def named(*names: str) -> list[ContractField]:
    return [field for field in FIELDS if field.name in names]


def test_a_field_keeps_its_meaning() -> None:
    found = check_contract(*pair(), fields=named("stop_token_ids", "usage"))
    assert [row.result for row in found.rows] == [FieldResult.SAME] * 2
    assert (found.is_same, found.release, found.algorithm) == (True, "0.5.23", "EAGLE")
    assert found.rows[0].requests == 20


@pytest.mark.thorough
def test_sound_servers_raise_no_alarm_and_test_every_field() -> None:
    found = sound([3001, 3002])
    assert (found["pairs"], found["alarms"]) == (2, [])
    assert found["same"] >= 2 * len(FIELDS) - 2  # a field may have no effect on a random model


@pytest.mark.thorough
def test_every_planted_bug_is_found_in_its_field() -> None:
    missed = []
    for fault in FAULTS:
        rows = check_contract(*pair(fault.name), fields=named(*fault.breaks)).rows
        missed += [(fault.name, row) for row in rows if row.result is not FieldResult.DIFFERS]
    assert missed == []
    assert len(FAULTS) >= 20


def test_the_stored_campaign_is_as_it_must_be() -> None:
    """After a change of the faults: `python -m campaigns contract planted --store`."""
    assert list(objections(stored())) == []


@pytest.mark.parametrize("change", ["pairs", "alarms", "planted", "engine"])
def test_a_bad_result_is_objected_to(change: str) -> None:
    results = stored()
    if change == "pairs":
        results["sound"]["pairs"] = 10
    elif change == "alarms":
        results["sound"]["alarms"] = [[1, "stop", "no reason"]]
    else:
        name = FAULTS[0].name if change == "planted" else FIELD_FAULTS[0].fault.name
        results[change][name] = []
    assert len(list(objections(results))) == 1


def test_the_bugs_of_the_engine_fit_the_shim(tmp_path: Any) -> None:
    breakable_shim(tmp_path, [each.fault for each in FIELD_FAULTS])
    for each in FIELD_FAULTS:
        compile(each.fault.code, each.fault.name, "exec")


def test_a_difference_has_a_reason_and_what_is_known_of_it() -> None:
    found = check_contract(
        *pair("counts min_new_tokens by steps"),
        plan=plan("0.5.23", "EAGLE"),
        fields=named("min_new_tokens"),
    )
    (row,) = found.rows
    assert "tokens, stop at" in row.reason and "the plain server" in row.reason
    assert row.advisories == ("SPA-2026-0002",)
    assert row.breaks and not found.is_same


def test_an_interrupted_contract_repeats_no_field() -> None:
    fields, saved = named("stop_token_ids", "usage", "n"), []
    whole = check_contract(*pair(), fields=fields, save=saved.append)
    assert [len(rows) for rows in saved] == [1, 2, 3]
    later: list[object] = []
    again = check_contract(*pair(), fields=fields, done=saved[1], save=later.append)
    assert (again, later) == (whole, saved[2:])


KILLED = """\
import os, signal
from speclaunch.measure.prove.contract import FIELDS, check_contract
from speclaunch.measure.prove.contract_servers import CONTRACT, ContractProgress, StoredContract
from tests.support.measure.contract_server import pair

stored = StoredContract.begin(CONTRACT, "one", "key", {}, ContractProgress(), fresh=False)
def save(rows):
    stored.add(ContractProgress(rows))
    if len(rows) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
check_contract(*pair(), fields=FIELDS[2:5], save=save)
"""


@pytest.mark.thorough
def test_a_kill_loses_no_finished_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -signal.SIGKILL
    lines: list[str] = []
    begun = ContractProgress()
    stored = StoredContract.begin(CONTRACT, "one", "key", {}, begun, fresh=False)
    with stored.resuming(lines.append):
        found = check_contract(*pair(), fields=FIELDS[2:5], done=stored.progress.rows)
    assert lines == [f"resuming {stored.directory.name} (2 fields saved; --fresh starts over)"]
    assert found == check_contract(*pair(), fields=FIELDS[2:5])


def test_the_served_data_type_decides_ties() -> None:
    seen = []
    probe = ContractField("any", lambda pair: seen.append(pair.tolerance) or same([]))  # type: ignore[func-returns-value]
    args = {"model_path": "m", "speculative_algorithm": "EAGLE", "dtype": "half"}
    served = resolve(request_of(args, None, {}, "0.5.23"), Facts())
    for known in (served, plan("0.5.23", "EAGLE"), None):
        check_contract(*pair(), plan=known, fields=[probe])
    assert seen == [0.05, 1e-3, 1e-3]  # what the plan leaves open, the server reports


def test_a_documented_difference_is_none_of_the_contract() -> None:
    found = check_contract(*pair("counts penalties by steps"), fields=named("frequency_penalty"))
    (row,) = found.rows
    assert row.result is FieldResult.DIFFERS
    assert row.documented is not None and "relaxed version" in row.documented
    assert found.is_same


def test_a_refusal_is_documented_by_its_message() -> None:
    (row,) = check_contract(*pair("refuses logit_bias"), fields=named("logit_bias")).rows
    assert row.documented == "The server refuses it: 400: logit_bias is not supported"


def test_an_error_of_the_server_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.measure.contract_server.REFUSED", 500)
    (row,) = check_contract(*pair("refuses logit_bias"), fields=named("logit_bias")).rows
    assert row.breaks
    assert row.reason.endswith("refused (500: logit_bias is not supported)")


def test_nothing_is_tested_after_a_server_ended() -> None:
    fields = [*named("context_limit"), *named("stop")]
    first, second = check_contract(*pair("ends at the context limit"), fields=fields).rows
    assert first.reason == "the server gave no valid answer: connection reset"
    assert (second.result, second.reason) == (
        FieldResult.NOT_TESTED,
        "the server ended during context_limit",
    )


def test_a_plain_server_that_ends_is_an_error() -> None:
    ours, _ = pair()
    plain = ScriptedServer(speculates=False, fault="ends at the context limit")
    with pytest.raises(LaunchError, match="the plain server ended during context_limit"):
        check_contract(ours, ContractServer(lambda: plain), fields=named("context_limit"))


def test_two_plain_servers_have_no_contract() -> None:
    with pytest.raises(LaunchError, match="needs a speculative server and a plain server"):
        check_contract(pair()[1], pair()[1])


def test_servers_that_differ_without_any_field_are_not_tested() -> None:
    ours = ScriptedServer(speculates=True, model=5)
    found = check_contract(ContractServer(lambda: ours), pair()[1], fields=named("stop"))
    assert found.rows[0].reason.startswith("the greedy answers differ even without these fields")
    assert not found.is_same


def test_a_field_without_effect_is_not_tested() -> None:
    probe = GreedyCase(Pair(*pair()).bases[0].body(), "nothing", lambda _: False)
    found = Pair(*pair()).compare([probe])
    assert (found.result, found.reason) == (
        FieldResult.NOT_TESTED,
        "it does not change the plain server's answers",
    )


def test_an_answer_of_another_shape_is_an_error() -> None:
    class Other(ScriptedServer):
        def post(self, path: str, body: dict[str, Any], timeout: float) -> Reply:
            return Reply({**super().post(path, body, timeout).body, "meta_info": None})

    server = ContractServer(lambda: Other(speculates=False))
    with pytest.raises(EngineError, match="answer is not in SGLang's format"):
        server.generate(Pair(*pair()).bases[0].body())


def test_a_field_that_a_server_answers_unreadably_differs() -> None:
    class Unreadable(ScriptedServer):
        def post(self, path: str, body: dict[str, Any], timeout: float) -> Reply:
            found = super().post(path, body, timeout)
            if "logprob_start_len" in body:
                logprobs = found.body["meta_info"]["input_token_logprobs"]
                logprobs[0] = 7
            return found

    server = Unreadable(speculates=True)
    (row,) = check_contract(
        ContractServer(lambda: server), pair()[1], fields=named("logprob_start_len")
    ).rows
    assert row.result is FieldResult.DIFFERS
    assert row.reason.startswith("an answer is not in SGLang's format: TypeError")


def test_a_tie_is_no_difference() -> None:
    """The plain server likes both tokens alike at the place where the answers part."""
    both = Pair(*pair())
    base = both.bases[0]
    plain = both.plainly(base.body())
    best, second = plain.meta["output_top_logprobs"][3]
    ours = type(plain)((*plain.ids[:3], second[1], *plain.ids[4:]), finish=plain.finish)
    assert (
        both.difference(base.body(), (ours, plain))[0] == f"token 4 is {second[1]}, not {best[1]}"
    )
    both.__dict__["tolerance"] = best[0] - second[0]
    assert both.difference(base.body(), (ours, plain))[0] is None
    third = type(plain)((*plain.ids[:3], 40, *plain.ids[4:]), finish=plain.finish)
    assert both.difference(base.body(), (third, plain))[0] == f"token 4 is 40, not {best[1]}"


def test_argmax_after_a_sampled_token_is_another_distribution() -> None:
    ours = tuple((token,) * 4 for token in (1, 2)) * 50
    theirs = tuple((n & 1 or 2, n & 2 or 1, n >> 2 & 1 or 2, n >> 3 & 1 or 2) for n in range(100))
    assert _agree(theirs, theirs[::-1]) and not _agree(ours, theirs)
