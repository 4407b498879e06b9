"""What the engines are asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import InputError
from speclaunch.measure.bench.workload import shipped, workload


def test_sets_that_ship_have_different_prompts() -> None:
    assert shipped() == ("chat", "code", "extraction", "repetition")
    for name in shipped():
        texts = workload(name, 64, 0).texts
        assert texts is not None and len(set(texts)) == 20


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ({"prompt": "Hello"}, "Hello"),
        ({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}, "Hello"),
        (
            {"messages": [{"content": "Be brief."}, {"content": [{"type": "text", "text": "Hi"}]}]},
            "Be brief.\n\nHi",
        ),
        ({"question_id": 81, "turns": ["Hello", "And now?"]}, "Hello"),
        ({"custom_id": "1", "body": {"messages": [{"content": "Hello"}]}}, "Hello"),
    ],
)
def test_prompts_of_a_file(tmp_path: Path, line: object, text: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f"{json.dumps(line)}\n\n")
    found = workload(str(path), 64, 0)
    assert (found.name, found.texts) == ("own", (text,))


def test_conversations_as_sharegpt_has_them(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    said = [
        {"id": "a", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt"}]},
        {"id": "b", "conversations": []},
        {"id": "c", "conversations": [{"from": "gpt", "value": "Sure."}]},
        {"id": "d", "conversation": [{"value": "Two"}]},
        {"prompt": "Three"},
    ]
    path.write_text(json.dumps(said, indent=1))
    assert workload(str(path), 64, 0).texts == ("Hi", "Two", "Three")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"prompt": "a"},', "not JSON"),
        ("[]", "no prompts"),
        ('[{"conversations": []}]', "no prompts"),
        ('[{"prompt": "a"}, 7]', "entry 2"),
    ],
)
def test_a_list_without_prompts_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        workload(str(path), 64, 0)
    (problem,) = raised.value.problems
    assert said in f"{problem.message} {problem.place}"


def test_the_first_prompts_of_a_file_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speclaunch.measure.bench.workload._MOST_TEXTS", 3)
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f'{{"prompt": "{n}"}}\n' for n in range(9)) + "broken")
    assert workload(str(path), 64, 0).texts == ("0", "1", "2")


def test_prompts_that_are_too_long_are_the_generators_to_leave_out(tmp_path: Path) -> None:
    found = replace(workload("code", 64, 0), longest=2048)
    words = found.words(tmp_path)
    assert words[words.index("--sharegpt-context-len") + 1] == "2048"
    assert "--sharegpt-context-len" not in workload("code", 64, 0).words(tmp_path)


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"prompt": ""}', '{"messages": "x"}', "7"])
def test_a_line_without_a_prompt_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f'{{"prompt": "a"}}\n{line}\n')
    with pytest.raises(InputError) as raised:
        workload(str(path), 64, 0)
    (problem,) = raised.value.problems
    assert problem.place is not None
    assert (problem.place.line, "JSON object" in str(problem.help)) == (2, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [("caht", "chat"), ("nothing.jsonl", "no such file"), ("/", "cannot read")],
)
def test_a_workload_that_is_none(name: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        workload(name, 64, 0)
    (problem,) = raised.value.problems
    assert said in f"{problem.message} {problem.help}"


def test_random_tokens_are_made_by_the_generator(tmp_path: Path) -> None:
    words = workload("random", 64, 512).words(tmp_path)
    assert words[:2] == ["--dataset-name", "random-ids"]
    assert (words[words.index("--random-input-len") + 1], list(tmp_path.iterdir())) == ("512", [])


def test_a_file_for_the_generator_is_private(tmp_path: Path) -> None:
    words = workload("code", 64, 0).words(tmp_path)
    path = Path(words[words.index("--dataset-path") + 1])
    assert path.stat().st_mode & 0o077 == 0
    assert len(json.loads(path.read_text())) == 20
