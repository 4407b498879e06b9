"""Broken drafts: what each costs on the real engine (runs.json), and whether a rule says so.

The drafts are stand-ins: names, shapes, configs and token maps of the tiny models, other numbers.
`python -m campaigns checkpoint_mutants run` measures, `judge` asks about the real ones.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine.checkpoints import stand_ins
from tests.support.engine.checkpoints.harmless import harmless
from tests.support.engine.checkpoints.judging import findings, is_harmed
from tests.support.engine.checkpoints.mutants import BASES, Mutant, mutants
from tests.support.engine.checkpoints.safetensors_bytes import Model, read

RUNS = json.loads(Path(__file__).with_name("runs.json").read_text())
SAMPLE = 9
"""Each so many are judged in the quick test."""

UNSEEN = {
    *(f"eagle3/rows-shuffled:{name}.weight" for name in ("fc", "lm_head")),
    *(f"eagle3/rows-shuffled:midlayer.mlp.{name}_proj.weight" for name in ("down", "gate", "up")),
    *(f"eagle/rows-shuffled:layers.0.mlp.{name}_proj.weight" for name in ("down", "gate", "up")),
    *("eagle/rows-shuffled:fc.weight", "eagle/fc-halves-swapped"),
    *(f"standalone/rows-shuffled:{name}.weight" for name in ("lm_head", "model.embed_tokens")),
    *("mtp/rows-shuffled:model.layers.2.eh_proj.weight", "mtp/eh_proj-halves-swapped"),
    *(f"{base}/all-shuffled" for base in BASES),
    *("eagle3/head-of-other-tokens", "standalone/permuted-tokenizer-left"),
}
"""Harmed drafts that no rule finds: each has all its numbers, in another order of rows or columns,
and nothing beside them that would tell."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stand_ins.write_all(tmp_path_factory.mktemp("models"))


@cache
def _model(folder: Path) -> Model:
    return read(folder)


def made(models: dict[str, Path]) -> Iterator[tuple[Mutant, Model]]:
    for base, pair in BASES.items():
        model = _model(models[pair.changed])
        for one in [*mutants(base, model), *harmless(base, model)]:
            yield one, model


def judged(mutant: Mutant, model: Model, models: dict[str, Path], folder: Path) -> set[str]:
    """The codes that the change adds."""
    changed = copy.deepcopy(model)
    mutant.change(changed)
    changed.write(folder)
    pair = BASES[mutant.base]
    target = folder if pair.draft is None else models[pair.target]
    found = findings(mutant.base, target, None if pair.draft is None else folder)
    return {one.code for one in found}


def run_of(mutant: Mutant) -> dict[str, Any]:
    found: dict[str, Any] = RUNS["runs"][mutant.key]
    return found


def mistakes(
    models: dict[str, Path], tmp_path: Path, every: int
) -> tuple[set[str], dict[str, set[str]]]:
    """Harmed drafts of which nothing is said, and harmless ones with what is said of them."""
    missed, alarms = set(), {}
    for place, (mutant, model) in enumerate(made(models)):
        if place % every:
            continue
        codes = judged(mutant, model, models, tmp_path / str(place))
        if mutant.harmless and codes:
            alarms[mutant.key] = codes
        elif not codes and is_harmed(run_of(mutant), RUNS["healthy"][mutant.base]):
            missed.add(mutant.key)
    return missed, alarms


def test_the_healthy_ones_speculate_and_nothing_is_said_of_them(models: dict[str, Path]) -> None:
    for base, pair in BASES.items():
        assert RUNS["healthy"][base] >= 2.5
        draft = None if pair.draft is None else models[pair.draft]
        assert not findings(base, models[pair.target], draft)


def test_each_was_run(models: dict[str, Path]) -> None:
    keys = [mutant.key for mutant, _ in made(models)]
    assert len(keys) == len(set(keys))
    assert RUNS["runs"].keys() == set(keys)
    broken = [mutant for mutant, _ in made(models) if not mutant.harmless]
    spared = [mutant for mutant, _ in made(models) if mutant.harmless]
    assert len(broken) >= 300
    assert len(spared) >= 100
    assert not [one.key for one in spared if is_harmed(run_of(one), RUNS["healthy"][one.base])]


@pytest.mark.thorough
def test_a_sample_of_broken_drafts_is_found(models: dict[str, Path], tmp_path: Path) -> None:
    missed, alarms = mistakes(models, tmp_path, SAMPLE)
    assert missed <= UNSEEN
    assert not alarms


@pytest.mark.campaign
@pytest.mark.slow
def test_all_broken_drafts_are_found(models: dict[str, Path], tmp_path: Path) -> None:
    missed, alarms = mistakes(models, tmp_path, 1)
    assert missed == UNSEEN
    assert not alarms
    harmed = [one for one, _ in made(models) if is_harmed(run_of(one), RUNS["healthy"][one.base])]
    assert len(harmed) >= 400
