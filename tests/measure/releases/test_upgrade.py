"""The verdict of an upgrade: what follows from the plans, and what both servers show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.checks import Lookup, all_rules
from speclaunch.engine import declare
from speclaunch.measure.prove.answers import ProofAnswer
from speclaunch.measure.prove.contract_servers import REFUSED, Contract, FieldResult, FieldRow
from speclaunch.measure.releases import upgrade_run
from speclaunch.measure.releases.launched import ReleaseAnswers
from speclaunch.measure.releases.upgrade import (
    Aspect,
    DeploymentUpgrade,
    UpgradeReason,
    UpgradeSettings,
    UpgradeVerdict,
    directory_upgrades,
    file_upgrades,
    recipe_upgrades,
    verdict_of,
)
from speclaunch.measure.releases.upgrade_run import ReleaseRun, run_reasons, upgrade_document
from tests.support.loops import rows

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
COMMAND = f"python3 -m sglang.launch_server --model-path {LLAMA} --speculative-algorithm NGRAM"


def settings(to: str, source: str | None, hardware: str | None = "h100") -> UpgradeSettings:
    found = Lookup(hardware=None if hardware is None else declare(hardware))
    return UpgradeSettings(to, source, (), found, all_rules())


def one(
    words: str, to: str, source: str | None, hardware: str | None = "h100"
) -> DeploymentUpgrade:
    (found,) = recipe_upgrades(words.split(), settings(to, source, hardware))
    return found


def script(folder: Path, *options: str, name: str = "run.sh") -> str:
    path = folder / name
    path.write_text(" ".join([COMMAND, *options]) + "\n")
    return str(path)


@pytest.mark.thorough
def test_nothing_that_differs_is_safe() -> None:
    found = one("recipe=eagle3_llama8b", "0.5.23", "0.5.20")
    assert (found.verdict, found.reasons) == (UpgradeVerdict.SAFE, ())
    record = upgrade_document("0.5.23", [found]).deployments[0]
    assert [bug.id for bug in record.changes.fixed] == ["SPA-2026-0111"]  # type: ignore[union-attr]


def test_unknown_hardware_is_unknown() -> None:
    found = one("recipe=eagle3_llama8b", "0.5.23", "0.5.20", None)
    assert found.verdict is UpgradeVerdict.UNKNOWN
    assert "set --hardware" in " ".join(reason.text for reason in found.reasons)


@pytest.mark.thorough
def test_the_same_release_hides_nothing() -> None:
    assert one("recipe=eagle3_llama8b", "0.5.23", "0.5.23", None).verdict is UpgradeVerdict.SAFE


def test_columns_of_the_same_release_have_two_names() -> None:
    comparison = one("recipe=eagle3_llama8b", "0.5.23", "0.5.23", None).comparison
    assert comparison is not None and comparison.names == ("before", "after")


def test_a_recipe_that_excludes_the_release_is_not_safe() -> None:
    found = one("recipe=standalone_qwen7b", "0.5.23", "0.5.12")
    assert found.verdict is UpgradeVerdict.NOT_SAFE and found.comparison is None
    assert "excludes SGLang 0.5.23" in found.reasons[0].text


def test_a_bug_that_the_release_adds_is_a_reason(tmp_path: Path) -> None:
    (found,) = file_upgrades(script(tmp_path), settings("0.5.18", "0.5.16"))
    assert [reason.aspect for reason in found.reasons] == [Aspect.ADVISORY]
    assert found.verdict is UpgradeVerdict.DIFFERS and found.reasons[0].name.startswith("SPA-")


def test_a_removed_flag_is_a_step_and_an_unknown_flag_is_not_safe(tmp_path: Path) -> None:
    file = script(tmp_path, "--cuda-graph-max-bs 8")
    (found,) = file_upgrades(file, settings("0.5.23", "0.5.10.post1"))
    assert any("--cuda-graph-max-bs" in step for step in found.steps)
    (found,) = file_upgrades(script(tmp_path, "--no-such-flag"), settings("0.5.23", None))
    assert found.verdict is UpgradeVerdict.NOT_SAFE and "--no-such-flag" in found.reasons[0].text


@pytest.mark.thorough
def test_an_assumed_release_is_never_safe(tmp_path: Path) -> None:
    (found,) = file_upgrades(script(tmp_path), settings("0.5.23", None))
    assert found.verdict is UpgradeVerdict.UNKNOWN
    assert "no SGLang version is set; assuming 0.5.23" in found.reasons[-1].text
    (found,) = file_upgrades(script(tmp_path), settings("0.5.23", "0.5.23"))
    assert found.verdict is UpgradeVerdict.SAFE


def test_an_error_of_both_releases_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(COMMAND.replace("NGRAM", "EAGLE3") + "\n")
    (found,) = file_upgrades(str(path), settings("0.5.23", "0.5.22"))
    assert found.verdict is UpgradeVerdict.NOT_SAFE
    assert any(reason.text.endswith("(as before)") for reason in found.reasons)


def test_a_directory_gives_all_its_deployments(tmp_path: Path) -> None:
    script(tmp_path, name="a.sh")
    (tmp_path / "b.yaml").write_text("defaults: [base, _self_]\nargs: {model_path: x}\nargz: 1\n")
    (tmp_path / "c.txt").write_text("nothing")
    found = directory_upgrades([str(tmp_path)], settings("0.5.23", "0.5.20"))
    assert [Path(upgrade.place.path).name for upgrade in found] == ["a.sh", "b.yaml"]
    assert found[1].verdict is UpgradeVerdict.UNKNOWN


def test_secrets_of_a_command_are_hidden(tmp_path: Path) -> None:
    secret = "hunter2hunter2"
    file = script(tmp_path, f"--api-key {secret}")
    found = file_upgrades(file, settings("0.5.23", "0.5.10.post1"))
    assert secret not in str(upgrade_document("0.5.23", found))


@rows(
    "verdicts, worst",
    [
        ((), "safe"),
        (("unknown",), "unknown"),
        (("unknown", "differs"), "differs"),
        (("differs", "not safe", "unknown"), "not safe"),
    ],
)
def test_the_worst_reason_is_the_verdict(verdicts: tuple[str, ...], worst: str) -> None:
    reasons = [UpgradeReason(Aspect.VALUE, UpgradeVerdict(verdict), "") for verdict in verdicts]
    assert verdict_of(reasons).value == worst


def answers(steps: int = 8, count: int = 6) -> ReleaseAnswers:
    return ReleaseAnswers(tuple(ProofAnswer(tuple(range(32)), 4, steps) for _ in range(count)))


SAME, DIFFERS, NOT_TESTED = FieldResult
DOCUMENTED = "argmax (f.py:1)"


def contract(result: FieldResult, documented: str | None = None) -> ReleaseAnswers:
    return replace(answers(), fields=(FieldRow("stop", result, documented=documented),))


GOOD = ReleaseRun("0.5.20", True, seconds=1.0, observation=contract(SAME), info={"page_size": 1})


def ran(hardware: str | None = "h100", **changes: Any) -> tuple[UpgradeReason, ...]:
    upgrade = one("recipe=eagle3_llama8b", "0.5.23", "0.5.20", hardware)
    return run_reasons(upgrade, GOOD, replace(GOOD, release="0.5.23", **changes))


def test_two_servers_alike_are_safe() -> None:
    assert ran() == ()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "aspect", "verdict", "text"),
    [
        ({"serves": False, "reason": "x"}, "start", "not safe", "0.5.23 does not serve: x"),
        ({"info": {"page_size": 64}}, "value", "differs", "page_size: 1 → 64 (as the servers"),
        (
            {"difference": "token 4 is 6 instead of 5"},
            *("output", "differs", "token 4 is 6 instead of 5"),
        ),
        ({"observation": answers(10)}, "acceptance", "not safe", "4.00 → 3.20"),
        ({"observation": answers(0)}, "acceptance", "not safe", "no answer has a verify step"),
        ({"observation": contract(DIFFERS)}, "contract", "not safe", "the request field stop"),
        (
            {"observation": contract(DIFFERS, f"{REFUSED}400: no")},
            *("contract", "not safe", "the request field stop"),
        ),
    ],
)
def test_what_only_the_new_server_shows(
    changes: dict[str, Any], aspect: str, verdict: str, text: str
) -> None:
    (found,) = ran(**changes)
    assert (found.aspect.value, found.verdict.value) == (aspect, verdict)
    assert text in found.text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (contract(DIFFERS, DOCUMENTED), contract(DIFFERS), "safe"),
        (contract(DIFFERS), contract(DIFFERS, DOCUMENTED), "safe"),
        (contract(NOT_TESTED), contract(DIFFERS, DOCUMENTED), "safe"),
        (contract(NOT_TESTED), contract(DIFFERS), "unknown"),
        (contract(DIFFERS), contract(SAME), "safe"),
        (contract(SAME), contract(NOT_TESTED), "safe"),
    ],
)
def test_a_field_counts_if_only_the_new_release_changes_it(
    before: ReleaseAnswers, after: ReleaseAnswers, verdict: str
) -> None:
    upgrade = one("recipe=eagle3_llama8b", "0.5.23", "0.5.20")
    found = run_reasons(
        upgrade, replace(GOOD, observation=before), replace(GOOD, observation=after)
    )
    assert verdict_of(found) == verdict


def test_a_longer_acceptance_is_no_reason() -> None:
    assert ran(observation=answers(4)) == ()


def test_an_old_server_that_does_not_start_is_unknown() -> None:
    upgrade = one("recipe=eagle3_llama8b", "0.5.23", "0.5.20")
    found = run_reasons(upgrade, replace(GOOD, serves=False, reason="y"), GOOD)
    assert verdict_of(found) is UpgradeVerdict.UNKNOWN


def test_servers_decide_what_the_plan_leaves_unknown() -> None:
    before = [
        reason.name for reason in one("recipe=eagle3_llama8b", "0.5.23", "0.5.20", None).reasons
    ]
    after = [reason.name for reason in ran(None)]
    assert "page_size" in before and "page_size" not in after


def test_nested_values_show_what_differs() -> None:
    before = {"page_size": {"decode": {"bs": [1, 2], "max": 8}, "prefill": {"max": 1}}}
    after = {"page_size": {"decode": {"bs": [1, 2], "max": 16}, "prefill": {"max": 1}}}
    upgrade = one("recipe=eagle3_llama8b", "0.5.23", "0.5.20")
    (found,) = run_reasons(upgrade, replace(GOOD, info=before), replace(GOOD, info=after))
    assert "page_size: {'decode': {'max': 8}} → {'decode': {'max': 16}} (as" in found.text


def test_a_nested_key_without_a_value_is_no_difference() -> None:
    before = {"page_size": {"decode": {"bs": [1], "max": None}, "prefill": {}}}
    after = {"page_size": {"decode": {"bs": [1]}, "prefill": {"bs": None}}}
    upgrade = one("recipe=eagle3_llama8b", "0.5.23", "0.5.20")
    assert run_reasons(upgrade, replace(GOOD, info=before), replace(GOOD, info=after)) == ()


def test_an_interrupted_upgrade_repeats_no_release_and_no_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    rows = tuple(FieldRow(name, FieldResult.SAME) for name in ("stop", "n", "usage"))
    started: list[str] = []
    begun_with: list[int] = []
    interrupted = False

    @contextmanager
    def launched(found: Any, *_: Any, speculates: bool = True) -> Iterator[Any]:
        started.append(found.version)
        observed = SimpleNamespace(
            info=lambda: {"page_size": 1}, observe=answers, difference=lambda *_: None
        )
        yield SimpleNamespace(
            observed=observed,
            seconds=1.0,
            can_run_twice=speculates,
            engine=SimpleNamespace(address=None),
            plan=None,
        )

    def checked(*words: Any) -> Contract:
        done, save = words[-2:]
        begun_with.append(len(done))
        for count in range(len(done), 3):
            save(rows[: count + 1])
            if started[-1] == "0.5.23" and count == 1 and interrupted:
                raise KeyboardInterrupt
        return Contract(rows, started[-1], "EAGLE")

    monkeypatch.setattr(upgrade_run, "launched", launched)
    monkeypatch.setattr(upgrade_run, "served_contract", checked)
    recipes: Any = [SimpleNamespace(version=release) for release in ("0.5.20", "0.5.23")]
    supply: Any = SimpleNamespace(prefetch=lambda _: None, require=lambda _: None)

    def run() -> upgrade_run.StoredUpgrade:
        first = upgrade_run.UpgradeProgress()
        stored = upgrade_run.StoredUpgrade.begin("upgrade", "one", "key", {}, first, fresh=False)
        lines.append(stored.progress.saved)
        upgrade_run.run_releases(recipes, stored, supply, 9, lambda _: None)
        return stored

    lines: list[str] = []
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        run()
    interrupted = False
    found = run()
    assert lines == ["", "1 releases, 2 fields"]
    assert started == ["0.5.20"] * 2 + ["0.5.23"] * 4
    assert begun_with == [0, 0, 2]
    assert [one.release for one in found.progress.runs] == ["0.5.20", "0.5.23"]
    assert found.progress.runs[0].observation == replace(answers(), fields=rows)
