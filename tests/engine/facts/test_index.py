"""The index that ships: every entry is read, and what nobody read is unknown to whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.rules.examine import BUG, check_rules
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.resources import models_dir
from speclaunch.engine.facts.facts import Checkpoint, Facts, FactSource, UnknownFact
from speclaunch.engine.facts.find_checkpoint import Sources, find_checkpoint
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.facts.known_models import index_names
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.resolve import resolve
from tests.support.checks.rules.harness import request_of
from tests.support.work import calls

INDEX = Sources(index=models_dir())
NOWHERE = {"HF_HUB_CACHE": "/nonexistent"}
NAMES = index_names()
H100 = declare("h100:2")


def found(name: str) -> Checkpoint | UnknownFact:
    return find_checkpoint(name, INDEX, environment=NOWHERE)


@pytest.mark.thorough
def test_enough_are_known() -> None:
    whole = [one for name in NAMES if isinstance(one := found(name), Checkpoint) and not one.unread]
    assert len(NAMES) >= 400
    assert len(whole) >= 150


STEP = 8


@pytest.mark.thorough
@pytest.mark.parametrize(
    "start",
    [
        0,
        *(
            pytest.param(start, marks=[pytest.mark.slow, pytest.mark.campaign])
            for start in range(1, STEP)
        ),
    ],
)
def test_no_entry_makes_a_rule_or_a_budget_stumble(start: int) -> None:
    """As a target, and as a draft of itself."""
    for number, name in enumerate(NAMES[start::STEP]):
        one = found(name)
        if isinstance(one, UnknownFact):
            assert one.why.startswith("the index lists its target, but not its config.json"), one
            continue
        assert one.origin is not None and one.origin.provenance is FactSource.INDEX
        for algorithm in (None, "EAGLE3", "EAGLE", "DFLASH", "STANDALONE"):
            args = {"model_path": "target", "tp_size": 2}
            draft = None
            if algorithm is not None:
                args |= {
                    "speculative_algorithm": algorithm,
                    "speculative_draft_model_path": "draft",
                }
                draft = one
            version = ("0.5.6", "0.5.14", "0.5.23")[number % 3]
            plan = resolve(request_of(args, None, {}, version), Facts(one, draft, H100))
            said = check_rules(plan, all_rules())
            assert not [rule for rule in said.skipped if rule.reason.startswith(BUG)], name
            budget(plan)


def test_a_file_is_read_with_little_work() -> None:
    found(NAMES[0])
    counts = sorted(calls(lambda name=name: found(name)) for name in NAMES[::20])  # type: ignore[misc]
    assert counts[len(counts) // 2] < 1500  # 820


def test_the_unread_context_of_a_draft_gives_no_verdict() -> None:
    """Laid out as a bare config.json it would be 32768 tokens, the default of its type."""
    draft = found("z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat")
    target = found("meta-llama/Llama-3.1-8B-Instruct")
    assert isinstance(draft, Checkpoint) and isinstance(target, Checkpoint)
    if "context_length" not in draft.unread:
        pytest.skip("its context has been read meanwhile")
    args = {
        "model_path": target.name,
        "speculative_algorithm": "DFLASH",
        "speculative_draft_model_path": draft.name,
    }
    said = check_rules(
        resolve(request_of(args, None, {}, "0.5.23"), Facts(target, draft)), all_rules()
    )
    assert "SPL402" not in {finding.code for finding in said.findings}
    reasons = {one.code: one.reason for one in said.skipped}
    assert "`max_position_embeddings`" in reasons["SPL402"]


def test_a_file_out_of_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "org" / "name.json"
    path.parent.mkdir()
    for text, why in (
        ('{"format": 2}', "format"),
        ('{"format": 1, "model": "org/other"}', "describes the model"),
        ('{"format": 1, "model": "org/name", "source": "x"}', "needs `source`"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"format": 1, "model": "org/name", "source": "x", "read": "2026-01-01", "config": 3}',
            "type",
        ),
    ):
        path.write_text(text)
        one = find_checkpoint("org/name", Sources(index=tmp_path), environment=NOWHERE)
        assert isinstance(one, UnknownFact) and why in one.why, (text[:40], one)
