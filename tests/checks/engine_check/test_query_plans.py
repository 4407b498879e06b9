"""Whom is asked, how often, and what is kept of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speclaunch.checks.engine_check.opinions import EngineQuerier, NoJudgeError, Verdicts, opened
from speclaunch.checks.engine_check.questions import EngineAnswer, EngineQuestion
from speclaunch.core.errors import ExitCode
from speclaunch.engine.facts.project_settings import EngineCheckMode
from tests.checks.engine_check.scripted_judge import RELEASE, ScriptedJudge, asker, plan_of, refuses

PLAN = ("--tp-size", "2", "--page-size", "16", "--disable-radix-cache")
PAIR = refuses("--page-size", "--disable-radix-cache")


def blamed(judge: ScriptedJudge, *words: str, **more) -> list[str]:  # type: ignore[no-untyped-def]
    opinion = asker(judge).opinion(plan_of(*words, **more))
    assert opinion is not None
    assert opinion.refusal is not None
    return [unit.name for unit in opinion.refusal.units]


def test_the_minimal_set_is_named_and_nothing_else() -> None:
    assert blamed(ScriptedJudge(PAIR), *PLAN) == ["page_size", "disable_radix_cache"]


def test_a_variable_may_be_among_them() -> None:
    judge = ScriptedJudge(refuses("--page-size", "SGLANG_ENABLE_SPEC_V2"))
    names = blamed(judge, *PLAN, env={"SGLANG_ENABLE_SPEC_V2": "1"})
    assert set(names) == {"page_size", "SGLANG_ENABLE_SPEC_V2"}


def test_what_the_engine_names_first_comes_first() -> None:
    judge = ScriptedJudge(
        refuses(
            "--page-size", "--disable-radix-cache", why="--disable-radix-cache needs page_size 1"
        )
    )
    assert blamed(judge, *PLAN) == ["disable_radix_cache", "page_size"]


def test_what_the_engine_names_besides_is_told_apart() -> None:
    def named(why: str) -> list[str]:
        judge = ScriptedJudge(refuses("--page-size", why=why))
        opinion = asker(judge).opinion(plan_of(*PLAN))
        assert opinion is not None and opinion.refusal is not None
        assert [unit.name for unit in opinion.refusal.units] == ["page_size"]
        return [unit.name for unit in opinion.refusal.named]

    assert named("page_size 16 does not go with --tp-size 2") == ["tp_size"]
    assert named("assert cfg.page_size % cfg.tp_size == 0") == ["tp_size"]
    assert named("my_tp_size, tp_sizes and tp size are others") == []


def test_another_refusal_is_not_the_same() -> None:
    def two(question: EngineQuestion) -> EngineAnswer:
        if "--tp-size" not in question.words:
            return refuses(place="srt/server_args.py:7")(question)
        return PAIR(question)

    assert blamed(ScriptedJudge(two), *PLAN) == ["tp_size", "page_size", "disable_radix_cache"]


@pytest.mark.parametrize("unjudged", [False, True])
def test_what_our_errors_do_not_explain_is_looked_into(unjudged: bool) -> None:
    def hangs_without(question: EngineQuestion) -> EngineAnswer:
        if unjudged and "--tp-size" not in question.words and "--page-size" in question.words:
            return EngineAnswer(None, RELEASE, "it hung", "", "")
        return PAIR(question)

    judge, plan = ScriptedJudge(hangs_without), plan_of(*PLAN)
    (tp_size,) = (token.place for token in plan.request.argv if token.text == "--tp-size")
    opinion = asker(judge).opinion(plan, blamed={tp_size})
    assert opinion is not None and opinion.refusal is not None
    assert {unit.name for unit in opinion.refusal.units} >= {"page_size", "disable_radix_cache"}
    assert len(judge.asked) > 6


def test_the_model_alone_may_be_refused() -> None:
    assert blamed(ScriptedJudge(refuses()), *PLAN) == []


def test_without_hardware_both_machines_must_refuse() -> None:
    def on_hopper(question: EngineQuestion) -> EngineAnswer:
        return (
            refuses()(question)
            if question.machine == "h200:8"
            else ScriptedJudge().ask([question], seconds=1)[0]
        )

    opinion = asker(ScriptedJudge(on_hopper)).opinion(plan_of(hardware=None))
    assert opinion is not None
    assert opinion.accepted
    assert opinion.resolved == {}, "they are those of one of the machines"


def test_what_could_not_be_judged_is_no_refusal() -> None:
    judge = ScriptedJudge(lambda _: EngineAnswer(None, RELEASE, "no such file", "OSError", ""))
    opinion = asker(judge).opinion(plan_of())
    assert opinion is not None
    assert opinion.refusal is None
    assert opinion.why == "no such file"
    assert not opinion.is_lasting


def test_a_verdict_is_asked_for_once(tmp_path: Path) -> None:
    judge = ScriptedJudge(PAIR)
    first = asker(judge, tmp_path).opinion(plan_of(*PLAN))
    asked = len(judge.asked)
    again = asker(judge, tmp_path).opinion(plan_of(*PLAN))
    assert first == again
    assert len(judge.asked) == asked
    asker(judge, tmp_path).opinion(plan_of(*PLAN, hardware="b200:8"))
    assert len(judge.asked) > asked


def test_another_judge_gives_another_verdict(tmp_path: Path) -> None:
    asker(ScriptedJudge(PAIR), tmp_path).opinion(plan_of(*PLAN))
    other = ScriptedJudge(digest="other")
    opinion = asker(other, tmp_path).opinion(plan_of(*PLAN))
    assert opinion is not None
    assert opinion.accepted


def test_what_could_not_be_judged_is_not_kept(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda _: EngineAnswer(None, RELEASE, "it hung", "", ""))
    for _ in range(2):
        opinion = asker(judge, tmp_path).opinion(plan_of())
        assert opinion is not None
        assert opinion.why == "it hung"
    assert len(judge.asked) == 2


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 9, b"x\n{}", b"[" * 100_000, b"\xff\n\xff", b'{"accepted": true}']
)
def test_a_broken_entry_is_none(tmp_path: Path, text: bytes) -> None:
    judge = ScriptedJudge()
    asker(judge, tmp_path).opinion(plan_of())
    entries = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in entries:
        path.write_bytes(text)
    opinion = asker(judge, tmp_path).opinion(plan_of())
    assert opinion is not None
    assert opinion.accepted
    assert len(judge.asked) == 2


def test_a_folder_that_cannot_be_written_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    opinion = asker(ScriptedJudge(), tmp_path / "file").opinion(plan_of())
    assert opinion is not None
    assert opinion.accepted


def test_entries_are_bounded(tmp_path: Path) -> None:
    kept = Verdicts(tmp_path)
    answer = EngineAnswer(True, RELEASE, "", "", "", {"text": "x" * 100_000})
    for number in range(20):
        kept.put(f"ab{number:037}0", answer)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(sizes) <= 700_000
    kept.put("ab" + "1" * 38, EngineAnswer(True, RELEASE, "", "", "", {"text": "x" * 200_000}))
    assert kept.get("ab" + "1" * 38) is None


def test_nothing_is_kept_where_nothing_shall_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(enabled=False) is None
    monkeypatch.setitem(os.environ, "SPECLAUNCH_NO_CACHE", "1")
    assert opened() is None


def test_always_needs_a_judge_and_auto_does_not() -> None:
    def nobody(version: str | None, python: Path | None) -> None:
        return None

    assert EngineQuerier(EngineCheckMode.AUTO, None, nobody).opinion(plan_of()) is None
    assert (
        EngineQuerier(EngineCheckMode.NEVER, None, lambda *_: ScriptedJudge()).opinion(plan_of())
        is None
    )
    with pytest.raises(NoJudgeError, match=r"no judge for SGLang 0\.5\.23") as caught:
        EngineQuerier(EngineCheckMode.ALWAYS, None, nobody).opinion(plan_of())
    assert caught.value.problems[0].help == "run `speclaunch engine judge add 0.5.23`"
    assert caught.value.exit_code is ExitCode.USAGE


def test_only_that_release_is_asked() -> None:
    judge = ScriptedJudge()
    judge.release = "0.5.18"
    assert EngineQuerier(EngineCheckMode.AUTO, None, lambda *_: judge).opinion(plan_of()) is None


def test_the_interpreter_that_is_launched_goes_first() -> None:
    own, other = ScriptedJudge(), ScriptedJudge(refuses(), digest="other")
    found = EngineQuerier(
        EngineCheckMode.AUTO, None, lambda _, python: other if python is None else own
    )
    opinion = found.opinion(plan_of(), ScriptedJudge.python)
    assert opinion is not None
    assert opinion.accepted


def test_the_time_that_loading_took_is_remembered(tmp_path: Path) -> None:
    judge = ScriptedJudge()
    first = asker(judge, tmp_path)
    wanted = first.query_for(plan_of())
    assert wanted is not None
    assert first.cost(wanted) > 1
    assert first.known(wanted) is None
    first.opinion_on(wanted)
    assert first.known(wanted) is not None
    assert asker(judge, tmp_path).cost(wanted) < 1
