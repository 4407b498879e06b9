"""Rounds of aiperf, read from records that aiperf 0.13.0 wrote of the CPU engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from speclaunch.core.errors import InputError, LaunchError
from speclaunch.measure.bench.load_generators import (
    Aiperf,
    RoundLoad,
    has_template,
    require_aiperf,
    require_measurable,
)
from speclaunch.measure.bench.workload import Prompts

RECORDS = Path(__file__).with_name("aiperf")
TEXTS = tuple(f"Prompt {number}" for number in range(6))
FAILED = {
    "metadata": {
        "x_request_id": "11b3",
        "request_start_ns": 1795431057009000000,
        "request_end_ns": 1795431057019000000,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    },
    "metrics": {},
    "error": {"code": 400, "type": "Bad Request", "message": "max_tokens must be positive"},
}
"""As of a request that the server refused."""

PROGRAM = """#!{python}
import json, os, sys
from pathlib import Path
words = sys.argv[1:]
here = Path({folder!r})
(here / "words.json").write_text(json.dumps(words))
(here / "prompts.jsonl").write_text(Path(words[words.index("--input-file") + 1]).read_text())
out = Path(words[words.index("--artifact-dir") + 1])
{body}
"""
COPY = """
records = Path({records!r})
(out / "profile_export.jsonl").write_text((records / "times.jsonl").read_text())
(out / "profile_export_raw.jsonl").write_text((records / "answers.jsonl").read_text())
"""


def program(tmp_path: Path, body: str) -> Aiperf:
    """An aiperf that writes what `body` says."""
    path = tmp_path / "aiperf"
    text = PROGRAM.format(python=sys.executable, folder=str(tmp_path), body=body)
    path.write_text(text)
    path.chmod(0o755)
    folder = tmp_path / "kept"
    folder.mkdir()
    return Aiperf(path, folder, None, {"R": "served-name"}, None)


def load(**changes: object) -> RoundLoad:
    given = {"prompts": Prompts("chat", 12, TEXTS), "concurrency": 3, "requests": 4, **changes}
    return RoundLoad("R", "http://127.0.0.1:1", number=0, seed=7, **given)  # type: ignore[arg-type]


def test_a_round_as_aiperf_recorded_it(tmp_path: Path) -> None:
    aiperf = program(tmp_path, COPY.format(records=str(RECORDS)))
    found = aiperf.measure(load(), 60)
    assert len(found.requests) == 2  # and one that warmed up
    one = found.requests[0]
    assert (one.ok, one.tokens, one.requested, one.prompt) == (True, 12, 12, 31)
    assert one.latency == pytest.approx(0.090480786)
    assert one.first_token == pytest.approx(0.074758592)
    assert one.verify_steps > 0
    assert sum(one.positions) == one.verify_steps
    assert one.characters > 0
    assert found.seconds == pytest.approx(0.091077561)
    assert list((tmp_path / "kept").iterdir()) == [tmp_path / "kept" / "aiperf.log"]


def test_both_sides_are_asked_the_same_behind_others_that_warm_up(tmp_path: Path) -> None:
    aiperf = program(tmp_path, COPY.format(records=str(RECORDS)))
    asked = []
    for _ in range(2):
        aiperf.measure(load(), 60)
        lines = (tmp_path / "prompts.jsonl").read_text().splitlines()
        asked.append([json.loads(line)["text"] for line in lines])
    assert asked[0] == asked[1]
    warm, measured = asked[0][:3], asked[0][3:]
    assert all(text.startswith("Warm-up") for text in warm)
    assert len(set(measured)) == 4
    assert set(measured) < set(TEXTS)
    words = json.loads((tmp_path / "words.json").read_text())
    for option, value in (
        ("--warmup-request-count", "3"),
        ("--request-count", "4"),
        ("--concurrency", "3"),
        ("--model", "served-name"),
        ("--reset-kv-cache-path", "/flush_cache"),
    ):
        assert words[words.index(option) + 1] == value


def test_a_request_that_failed_is_told(tmp_path: Path) -> None:
    body = f"(out / 'profile_export.jsonl').write_text({json.dumps(FAILED)!r})\nsys.exit(1)"
    (one,) = program(tmp_path, body).measure(load(), 60).requests
    assert (one.ok, one.tokens, one.error) == (False, None, "max_tokens must be positive")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('12:00:00 ERROR    No such model (manager.py:1)'); sys.exit(1)", "No such model"),
        ("sys.exit(3)", "exit code 3"),
        ("(out / 'profile_export.jsonl').write_text('{}')", "did not write records in aiperf"),
        ("(out / 'profile_export.jsonl').write_text('x')", "did not write records in aiperf"),
    ],
)
def test_an_aiperf_that_fails_is_no_round(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        program(tmp_path, body).measure(load(), 60)


@pytest.mark.thorough
def test_an_aiperf_that_hangs_is_ended(tmp_path: Path) -> None:
    body = "import time\n(here / 'pid').write_text(str(os.getpid()))\ntime.sleep(60)"
    with pytest.raises(LaunchError, match="did not finish"):
        program(tmp_path, body).measure(load(), 2)
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_prompts_of_a_length_need_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="tokenizer"):
        program(tmp_path, "").measure(load(prompts=Prompts("chat", 12, TEXTS, 0, 500)), 60)


def test_what_aiperf_cannot_be_asked_for_is_refused() -> None:
    with pytest.raises(InputError, match="key"):
        require_measurable(["secret"], [])
    with pytest.raises(InputError, match="random"):
        require_measurable(["", None], [Prompts("random", 12, None, 64)])
    require_measurable(["", None], [Prompts("chat", 12, TEXTS)])


def test_without_aiperf_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="not on PATH"):
        require_aiperf()


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({"tokenizer_config.json": "{}"}, False),
        ({"tokenizer_config.json": '{"chat_template": "{{ messages }}"}'}, True),
        ({"tokenizer_config.json": "{}", "chat_template.jinja": "x"}, True),
        ({}, False),
    ],
)
def test_chats_are_for_models_with_a_template(
    tmp_path: Path, files: dict[str, str], template: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert has_template(str(tmp_path)) is template
    assert has_template("organisation/name")
