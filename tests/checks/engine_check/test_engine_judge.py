"""What a judge makes of a worker that fails, and what reaches a worker."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.checks.engine_check import engine_judge
from speclaunch.checks.engine_check.engine_judge import EngineJudge, place
from speclaunch.checks.engine_check.opinions import name_of
from speclaunch.checks.engine_check.questions import EngineQuestion
from speclaunch.checks.lint.workers import spread
from speclaunch.core.safe_text import Redactor
from speclaunch.engine.releases.command import FromEnvironment

FAKE = Path(__file__).with_name("fake_worker.py")


def question(*words: str, **more: object) -> EngineQuestion:
    told = {"env": (), "machine": "h200:8", "folder": None, "configs": ()} | more
    return EngineQuestion(words, **told)  # type: ignore[arg-type]


def fake(*words: str, patience: float = 60) -> EngineJudge:
    command = (sys.executable, FAKE, *words)
    return EngineJudge("0.0.1", Path(sys.executable), "d", command=command, patience=patience)


def test_a_text_from_the_environment_has_the_key_of_its_value() -> None:
    found = question("--port", FromEnvironment("30000", ("30000",)))
    assert name_of("d", found, ()) == name_of("d", question("--port", "30000"), ())


@pytest.fixture
def judge() -> Iterator[EngineJudge]:
    made = fake()
    yield made
    made.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("garbage", "invalid answer"),
        ("list", "invalid answer"),
        ("nothing", "invalid answer"),
        ("unasked", "without a query"),
        ("die", "died of SIGSEGV: Fatal: it hurts"),
        ("exit", "ended with exit code 3"),
        ("huge", "longer than 8 MiB"),
    ],
)
def test_a_worker_that_fails_fails_one_question_alone(
    judge: EngineJudge, act: str, told: str
) -> None:
    first, failed, last = judge.ask(
        [question("echo"), question(act, "it hurts"), question("echo")], seconds=100
    )
    assert first.accepted is last.accepted is True
    assert failed.accepted is None
    assert told in failed.why


@pytest.mark.thorough
def test_a_fork_has_a_worker_of_its_own(
    judge: EngineJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def asked(_: int = 0) -> bytes:
        (said,) = judge.ask([question("echo")], seconds=100)
        return str(said.resolved.get("pid")).encode()

    own = asked()
    with spread(range(6), asked, 2) as answers:
        first, second, *rest = answers
    assert len({own, first, second}) == 3
    assert rest == [first, second] * 2
    assert asked() == own
    until = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) > 1 and time.monotonic() < until:
        time.sleep(0.02)  # the workers of the forks end by themselves
    assert len(list(tmp_path.iterdir())) == 1


def test_an_answer_too_many_is_not_the_next_questions(judge: EngineJudge) -> None:
    first, second, last = judge.ask(
        [question("twice"), question("repeat", "no"), question("repeat", "no")], seconds=100
    )
    assert first.accepted is True
    assert second.accepted is None and "without a query" in second.why
    assert last.accepted is False and "no" in last.why


@pytest.mark.thorough
def test_a_worker_that_hangs_is_killed_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_judge, "_SLACK_S", 0.5)
    judge = fake(patience=0.5)
    hung, other = judge.ask([question("hang"), question("echo")], seconds=100)
    assert hung.accepted is None and "no answer within" in hung.why
    assert other.accepted in (True, None)  # half a second may not start a new one
    judge.close()
    assert not [line for line in commands() if line.startswith("sleep\x00600")]


def commands() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.getsid(int(path.parent.name)) == os.getsid(0):
                continue
            yield path.read_text(errors="replace")
        except (OSError, ProcessLookupError):
            continue


@pytest.mark.thorough
def test_a_worker_that_never_loads_costs_its_time_once() -> None:
    judge = fake("mute")
    began = time.monotonic()
    answers = judge.ask([question("echo")] * 50, seconds=1.0)
    assert time.monotonic() - began < 60
    assert [a.accepted for a in answers] == [None] * 50
    assert "no answer within" in answers[0].why


def test_an_interpreter_that_is_not_there_is_no_judge() -> None:
    judge = EngineJudge("0.0.1", Path("/nowhere/python"), "d")
    (answer,) = judge.ask([question("echo")], seconds=10)
    assert answer.accepted is None and "cannot be used" in answer.why


@pytest.mark.thorough
def test_a_judge_that_dies_of_everything_is_given_up(judge: EngineJudge) -> None:
    answers = judge.ask([question("exit")] * 9, seconds=100)
    assert {a.accepted for a in answers} == {None}
    assert "failed 5 times" in answers[-1].why


def test_the_whole_has_its_time(judge: EngineJudge) -> None:
    (answer,) = judge.ask([question("echo")], seconds=0)
    assert answer.accepted is None and "time" in answer.why


def test_what_no_machine_would_start_is_not_asked(judge: EngineJudge) -> None:
    huge, unknown, other = judge.ask(
        [question("echo", "x" * (2 << 20)), question("echo", machine="h2000"), question("echo")],
        seconds=100,
    )
    assert huge.accepted is None and "longer than 1 MiB" in huge.why
    assert unknown.accepted is None and "h2000" in unknown.why
    assert other.accepted is True


def test_noise_beside_the_answers_stops_nothing(judge: EngineJudge) -> None:
    (answer,) = judge.ask([question("chatter")], seconds=100)
    assert answer.accepted is True


@pytest.mark.parametrize(
    "said",
    [
        "the 'nvidia_megakernel' plugin is not installed; install sgl-nvidia-mega",
        "--enable-http2 requires the 'granian' package. Install with: pip install granian",
        "please check flashinfer installation",
    ],
)
def test_what_hangs_on_a_package_is_not_judged_without_the_package(said: str) -> None:
    for paths, accepted in ((), False), ((Path("site"),), None):
        command = (sys.executable, FAKE)
        made = EngineJudge("0.0.1", Path(sys.executable), "d", paths=paths, command=command)
        (answer,) = made.ask([question("repeat", said)], seconds=60)
        made.close()
        assert answer.accepted is accepted, "an interpreter that will serve says what is true there"
        assert said in answer.why


@pytest.mark.parametrize("kind", ["FileNotFoundError", "ImportError", "OSError"])
def test_what_the_machine_of_the_judge_lacks_is_no_refusal(judge: EngineJudge, kind: str) -> None:
    found, refused = judge.ask(
        [question("raise", kind, "no such file"), question("raise", "ValueError", "no")],
        seconds=60,
    )
    assert (found.accepted, found.why) == (None, f"{kind}: no such file")
    assert (refused.accepted, refused.why) == (False, "no")


def test_secrets_come_back_in_no_answer(judge: EngineJudge) -> None:
    (answer,) = judge.ask(
        [
            question(
                *("repeat", "--api-key", "sk-very-secret", "--admin-api-key=other-secret"),
                env=(("MY_TOKEN", "third-secret"), ("MODE", "plain")),
            )
        ],
        seconds=100,
    )
    assert "secret" not in answer.why
    assert "plain" in answer.why and "***" in answer.why


def test_nothing_is_left_of_a_judge(judge: EngineJudge) -> None:
    (answer,) = judge.ask([question("echo")], seconds=100)
    folder = Path(answer.resolved["cwd"]).parent
    assert folder.is_dir() and not Path(answer.resolved["cwd"]).exists()
    judge.close()
    assert not folder.exists()


def test_variables_do_not_reopen_what_is_closed(judge: EngineJudge) -> None:
    env = (("HF_HUB_OFFLINE", "0"), ("HOME", "/root"), ("SGLANG_X", "1"), ("HTTPS_PROXY", "p"))
    (answer,) = judge.ask([question("echo", env=env)], seconds=100)
    assert answer.resolved["env"] == {"SGLANG_X": "1"}


@pytest.mark.thorough
def test_what_is_read_at_import_is_there_at_import(judge: EngineJudge) -> None:
    """Each setting of such variables has its own process; what is only written there has not."""
    env = [(("SGLANG_EARLY", value), ("SGLANG_LATE", "1")) for value in ("1", "2", "1", "3", "4")]
    asked = [question("echo", env=one) for one in env]
    plain = question("echo", env=(("SGLANG_CACHE_DIR", "/x"), ("PATH", "/y")))
    *answers, last = judge.ask([*asked, plain], seconds=100)
    assert [one.resolved["early"] for one in answers] == ["1", "2", "1", "3", "4"]
    assert last.resolved["early"] is None
    assert len(judge._others) == engine_judge._MOST_OTHERS
    judge.close()
    assert not judge._others


def test_a_variable_that_names_code_is_not_imported_with(judge: EngineJudge) -> None:
    (answer,) = judge.ask([question("echo", env=(("SGLANG_PLUGINS", "evil"),))], seconds=100)
    assert answer.accepted is None and "SGLANG_PLUGINS changes what is imported" in answer.why


names = st.text("abz/.~-_ é", min_size=1, max_size=20)


@pytest.mark.thorough
@given(name=names, absolute=st.booleans(), in_folder=st.booleans())
def test_a_config_is_laid_out_where_the_command_finds_it_and_nowhere_else(
    tmp_path_factory: pytest.TempPathFactory, name: str, absolute: bool, in_folder: bool
) -> None:
    """Whatever an id looks like: below the scratch folder, and by its own name in the answer."""
    scratch = tmp_path_factory.mktemp("scratch")
    name = "/" + name if absolute else name
    folder = tmp_path_factory.getbasetemp() if in_folder else None
    asked = question("--model-path", name, f"--x={name}", folder=folder, configs=((name, "{}"),))
    with place(asked, scratch) as placed:
        path = placed.folder / placed.words[1]
        assert (path / "config.json").read_text() == "{}"
        assert path.resolve().is_relative_to(scratch.resolve())
        assert placed.words[2] == f"--x={placed.words[1]}"
        assert placed.own_names(placed.words[1]) == name
    assert not list(scratch.iterdir())


def test_secret_names_are_told_from_numbers_and_paths() -> None:
    words = ("--max-total-tokens", "40960", "--speculative-token-map", "a/map.pt", "--api-key", "k")
    assert Redactor.of_command(words).text("40960 a/map.pt") == "40960 a/map.pt"
