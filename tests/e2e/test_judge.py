"""The judge on the real engine: hostile input, and a fork of a release."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from speclaunch.checks.engine_check.add_judge import add
from speclaunch.checks.engine_check.engine_judge import EngineJudge
from speclaunch.checks.engine_check.installed_judges import (
    added_judges,
    all_judges,
    cpu_judge,
    find_judge,
    remove,
)
from speclaunch.checks.engine_check.questions import EngineAnswer, EngineQuestion
from speclaunch.engine.facts.cpu_engine import CpuEngine, site_packages
from speclaunch.engine.releases.catalogue import load, resolve_version
from tests.support.conformance import data

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

LLAMA = json.dumps(
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }
)
EVIL = """
from pathlib import Path
Path({mark!r}).write_text("executed")
from transformers import PretrainedConfig
class EvilConfig(PretrainedConfig):
    model_type = "evil"
"""


@pytest.fixture(scope="module")
def judge(cpu_engine: CpuEngine) -> Iterator[EngineJudge]:
    found = cpu_judge()
    assert found is not None and found.python == cpu_engine.python
    yield found
    found.close()


def question(*words: str, machine: str = "h200:8", folder: Path | None = None) -> EngineQuestion:
    configs = (("meta/llama", LLAMA),)
    return EngineQuestion(("--model-path", *words), (), machine, folder, configs)


def ask(judge: EngineJudge, *questions: EngineQuestion) -> list[EngineAnswer]:
    return judge.ask(questions, seconds=600)


@pytest.mark.core(0)
def test_the_engine_judges_in_its_own_words_at_its_own_line(judge: EngineJudge) -> None:
    plain, usage, refused, silent = ask(
        judge,
        question("meta/llama"),
        question("meta/llama", "--tp-size", "two"),
        question("meta/llama", "--attention-backend", "trtllm_mla", machine="a100:8"),
        question("meta/llama", "--chunked-prefill-size", "100", "--page-size", "64"),
    )
    assert plain.accepted is True
    assert plain.resolved["model_path"] == "meta/llama"
    assert plain.resolved["attention_backend"] == "fa3"
    assert (usage.accepted, usage.kind) == (False, "SystemExit")
    assert usage.place == "--tp-size"
    assert usage.why == "argument --tp-size/--tensor-parallel-size: invalid int value: 'two'"
    assert refused.accepted is False and "Blackwell" in refused.why
    assert refused.place.startswith("srt/arg_groups/overrides.py:")
    assert refused.line.startswith("raise ValueError")
    assert silent.accepted is False
    assert silent.why  # an assertion without words is told by its line


@pytest.mark.core(0)
def test_what_a_machine_has_decides(judge: EngineJudge) -> None:
    backends = [
        answer.resolved["attention_backend"]
        for answer in ask(
            judge,
            *(question("meta/llama", machine=m) for m in ("h200:8", "b200:8", "a100:8", "cpu")),
        )
    ]
    assert len(set(backends)) > 2, backends


@pytest.mark.core(0)
def test_code_of_a_model_is_never_executed(judge: EngineJudge, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for name, kind in (("evil", "evil"), ("known", "llama")):
        model = tmp_path / name
        model.mkdir()
        code = {"AutoConfig": "configuration_evil.EvilConfig"}
        config = json.loads(LLAMA) | {"model_type": kind, "auto_map": code}
        (model / "config.json").write_text(json.dumps(config))
        (model / "configuration_evil.py").write_text(EVIL.format(mark=str(mark)))
        (model / "__init__.py").write_text(EVIL.format(mark=str(mark)))
    evil, known, distrusted = ask(
        judge,
        question("evil", "--trust-remote-code", folder=tmp_path),
        question("known", "--trust-remote-code", folder=tmp_path),
        question("evil", folder=tmp_path),
    )
    assert not mark.exists()
    assert evil.accepted is None and "auto_map" in evil.why
    assert known.accepted is True  # the library's own class reads it
    assert distrusted.accepted is not True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil", "known"]


@pytest.mark.core(0)
def test_endless_values_end(judge: EngineJudge, tmp_path: Path) -> None:
    deep = "[" * 200_000
    numbers = [str(number) for number in range(1, 60_000)]
    model = tmp_path / "deep"
    model.mkdir()
    (model / "config.json").write_text('{"a":' * 50_000)
    answers = ask(
        judge,
        question("meta/llama", "--json-model-override-args", deep),
        question("meta/llama", "--cuda-graph-bs-decode", *numbers),
        question("meta/llama", "--context-length", "9" * 5000),
        question("deep", folder=tmp_path),
        question("/dev/zero", folder=tmp_path),
        question("meta/llama"),
    )
    assert answers[0].accepted is not True and answers[0].why
    assert answers[3].accepted is not True and answers[3].why
    assert answers[4].accepted is not True and answers[4].why
    assert answers[5].accepted is True


@pytest.mark.core(0)
def test_a_question_leaves_nothing_to_the_next(judge: EngineJudge) -> None:
    odd = question("meta/llama", "--page-size", "64", "--dtype", "float16", machine="b200:8")
    before, _, after = ask(judge, question("meta/llama"), odd, question("meta/llama"))
    assert before.accepted is after.accepted is True
    drift = {"random_seed"}
    first = {k: v for k, v in before.resolved.items() if k not in drift}
    assert first == {k: v for k, v in after.resolved.items() if k not in drift}


def stored(count: int) -> list[EngineQuestion]:
    """As many commands that the release accepts as of others, with the models that they name."""
    draw, found = Random("light"), [s for s in data.load("0.5.23") if s.machine == "h200"]
    lines = draw.sample([s for s in found if s.accepts], count)
    lines += draw.sample([s for s in found if not s.accepts], count)
    configs = {name: json.dumps(config) for name, config in data.models().items()}
    return [
        EngineQuestion(
            said.words,
            tuple(said.env.items()),
            "h200:8",
            None,
            tuple((name, configs[name]) for name in configs if name in said.words),
        )
        for said in lines
    ]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judges of these tests alone: those of who runs them have the same names."""
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))


def test_a_judge_without_torch_says_what_one_with_torch_says(
    judge: EngineJudge, home: None
) -> None:
    made = add("0.5.23")
    try:
        assert made.light and made.size < 64 << 20
        own = next(one for one in all_judges() if one.python == Path(made.python))
        questions = stored(25)
        with_torch, without = judge.ask(questions, seconds=600), own.ask(questions, seconds=600)
        for question, one, other in zip(questions, with_torch, without, strict=True):
            told = [
                (said.accepted, said.why, said.kind, said.place, said.line, said.resolved)
                for said in (one, other)
            ]
            for *_, resolved in told:
                resolved.pop("random_seed", None)  # type: ignore[attr-defined]
            assert told[0] == told[1], question.words
        assert {one.accepted for one in without} == {True, False}
    finally:
        assert remove("0.5.23")


def test_the_walls_hold_without_torch(fork: Path, tmp_path: Path) -> None:
    made = add("my-fork", str(fork))
    assert made.light
    own = next(one for one in all_judges() if one.release == made.release)
    assert isinstance(own, EngineJudge)
    places = tmp_path / "code", tmp_path / "endless"
    for place in places:
        place.mkdir()
    try:
        test_code_of_a_model_is_never_executed(own, places[0])
        test_endless_values_end(own, places[1])
        test_a_question_leaves_nothing_to_the_next(own)
    finally:
        own.close()


def test_what_a_release_reads_at_import_counts(judge: EngineJudge) -> None:
    """0.5.23 srt/environ.py: SGLANG_MOE_PADDING is read as its module is imported."""
    plain = question("meta/llama")
    early = EngineQuestion(
        plain.words, (("SGLANG_MOE_PADDING", "1"),), "h200:8", None, plain.configs
    )
    code = EngineQuestion(plain.words, (("SGLANG_PLUGINS", "x"),), "h200:8", None, plain.configs)
    first, second, third = ask(judge, plain, early, code)
    assert first.accepted is second.accepted is True
    assert "SGLANG_MOE_PADDING" in judge.hello["at_import"]
    assert len(judge._others) == 1
    assert third.accepted is None and "SGLANG_PLUGINS" in third.why


@pytest.fixture
def fork(cpu_engine: CpuEngine, home: None, tmp_path: Path) -> Iterator[Path]:
    """A copy of the release with an added argument, an added choice, an added refusal."""
    (installed,) = site_packages(cpu_engine.venv)
    copy = tmp_path / "checkout" / "sglang"
    skipped = shutil.ignore_patterns(
        "__pycache__", "*.cu", "*.cuh", "models", "_bench*", "_server*"
    )
    shutil.copytree(installed / "sglang", copy, ignore=skipped)
    shutil.copytree(installed / "sglang" / "srt" / "models", copy / "srt" / "models")
    change(
        copy / "srt/arg_groups/fields/memory.py",
        "    disable_radix_cache: A[",
        '    my_flag: A[int, Arg(help="Mine.")] = 7\n    disable_radix_cache: A[',
    )
    change(
        copy / "srt/arg_groups/choices.py",
        "SAMPLING_BACKEND_CHOICES = set(BUILT_IN_SAMPLING_BACKENDS)",
        'SAMPLING_BACKEND_CHOICES = {*BUILT_IN_SAMPLING_BACKENDS, "mine"}',
    )
    change(
        copy / "srt/arg_groups/validation_hook.py",
        "def check_server_args(server_args: Any):\n",
        "def check_server_args(server_args: Any):\n"
        "    if server_args.my_flag > 9:\n"
        '        raise ValueError("my_flag is at most 9 here")\n',
    )
    yield copy.parent
    remove("my-fork")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, (path, text.count(old))
    path.write_text(text.replace(old, new))


def test_a_fork_is_judged_by_itself(fork: Path, judge: EngineJudge) -> None:
    made = add("my-fork", str(fork))
    assert made.size > 1 << 20 and "+fork." in made.release
    catalogue = load(made.release)
    assert catalogue.by_name("my_flag") is not None
    assert resolve_version("my-fork").held == made.release
    own = find_judge("my-fork", None)
    assert own is not None and own.release == made.release
    assert own.digest != judge.digest
    assert made.name in {one.name for one in added_judges()}
    questions = [
        question("meta/llama", "--my-flag", "3", "--sampling-backend", "mine"),
        question("meta/llama", "--my-flag", "10"),
        question("meta/llama"),
    ]
    taken, refused, plain = own.ask(questions, seconds=600)
    assert taken.resolved["my_flag"] == 3 and taken.resolved["sampling_backend"] == "mine"
    assert refused.accepted is False and refused.why == "my_flag is at most 9 here"
    assert refused.place.startswith("srt/arg_groups/validation_hook.py:")
    assert plain.accepted is True and plain.resolved["my_flag"] == 7
    assert [a.accepted for a in judge.ask(questions, seconds=600)] == [False, False, True]
