"""The recipe: which version it is judged for, what it needs of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.load import Recipe, load
from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.hardware import declare
from speclaunch.serving.doctor.gather import (
    RecipeResults,
    check_recipe,
    is_cpu,
    is_elsewhere,
    target_of,
    versions_to_check,
)
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import gpu, h100s


def recipe(tmp_path: Path, engine: str = "", args: str = "", more: str = "") -> Recipe:
    path = tmp_path / "r.yaml"
    path.write_text(
        f"name: r\nengine:\n  env: {{}}\n{engine}{more}args:\n  model_path: a/b\n{args}"
    )
    return load(str(path))


@pytest.mark.parametrize(
    ("engine", "asked", "installed", "versions"),
    [
        ("", (), None, ("0.5.23",)),
        ("", (), "0.5.18", ("0.5.18",)),
        ("", ("0.5.7", "0.5.9"), "0.5.18", ("0.5.7", "0.5.9")),
        ("  version: '0.5.11'\n", (), "0.5.18", ("0.5.11",)),
        ("  version: '<0.5.12'\n", (), "0.5.18", ("0.5.11",)),
        ("  version: '<0.5.12'\n", (), "0.5.9", ("0.5.9",)),
        ("", (), "0.0.1", ("0.4.6.post5",)),  # the nearest
    ],
)
def test_the_version(
    engine: str, asked: tuple[str, ...], installed: str | None, versions: Any, tmp_path: Path
) -> None:
    assert versions_to_check(recipe(tmp_path, engine), asked, installed) == versions


@pytest.mark.parametrize(
    ("engine", "asked"), [("  version: '>=0.5.11'\n", ("0.5.7",)), ("  version: '>9'\n", ())]
)
def test_no_version_can_serve_it(engine: str, asked: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs"):
        versions_to_check(recipe(tmp_path, engine), asked, None)


@pytest.mark.parametrize(
    ("args", "gpus", "tensor"),
    [
        ("", 1, 1),
        ("  tp_size: 8\n", 8, 8),
        ("  tp_size: 8\n  pp_size: 2\n", 16, 8),
        ("  tp_size: 16\n  nnodes: 2\n", 8, 16),
        ("  tp_size: 2\n  dp_size: 4\n", 8, 2),  # replicas have GPUs of their own
        ("  tp_size: 8\n  dp_size: 8\n  enable_dp_attention: true\n", 8, 8),
    ],
)
def test_gpus_of_one_machine(args: str, gpus: int, tensor: int, tmp_path: Path) -> None:
    target = aimed(recipe(tmp_path, args=args), "0.5.18")
    assert (target.gpus, target.tensor_parallel, target.device) == (gpus, tensor, "cuda")


def aimed(found: Recipe, version: str) -> Any:
    judged = check_recipe(found, (version,), Lookup(hardware=declare("h100:8")), (), {})
    return target_of(
        found,
        judged.plan,
        version=version,
        requested=(),
        installed=version,
        hardware=None,
        elsewhere=False,
        meant_for=None,
        compiled=False,
        own_variables=frozenset(),
    )


def test_what_else_is_asked_of_the_machine(tmp_path: Path) -> None:
    args = (
        "  mem_fraction_static: 0.7\n  attention_backend: flashinfer\n  load_format: dummy\n"
        "  speculative_algorithm: NEXTN\n"
    )
    target = aimed(recipe(tmp_path, args=args), "0.5.18")
    assert target.mem_fraction == 0.7
    assert target.attention_backends == ("flashinfer",)
    assert target.algorithm == "EAGLE"
    assert target.dummy_weights


def test_a_recipe_of_the_cpu_engine() -> None:
    found = load("cpu_ngram")
    assert is_cpu(found)
    target = aimed(found, "0.5.23")
    assert (target.cpu, target.device, target.algorithm) == (True, "cpu", "NGRAM")
    assert not is_cpu(load("ngram_qwen7b"))


HERE = h100s(gpu(0, 79), gpu(1, 79))


@rows(
    "name, found, elsewhere",
    [
        (None, HERE, False),
        ("h100", HERE, False),
        ("h100:2", HERE, False),
        ("h100:8", HERE, True),
        ("h200:2", HERE, True),
        ("a100-80gb", HERE, True),
        ("mi300x", HERE, True),
        ("h100", UnknownFact("gpu", "none"), True),
        ("cpu", UnknownFact("gpu", "none"), False),
    ],
)
def test_whether_another_machine_was_named(
    name: str | None, found: object, elsewhere: bool
) -> None:
    assert is_elsewhere(declare(name) if name else None, found) is elsewhere


def test_the_rules_are_asked_with_the_variables_of_the_shell(tmp_path: Path) -> None:
    found = recipe(tmp_path)
    for environment, codes in (({}, set()), ({"SGLANG_ENABLE_SPECV2": "1"}, {"SPL008"})):
        judged = check_recipe(found, ("0.5.18",), Lookup(), all_rules(), environment)
        assert {f.code for f in judged.findings} & {"SPL008"} == codes


def test_ignores_are_heeded_and_every_version_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    text = "name: r\nargs:\n  model_path: a/b\n  enable_nonsense: true{}\n"
    path.write_text(text.format(""))
    judged = check_recipe(load(str(path)), ("0.5.7", "0.5.23"), Lookup(), all_rules(), {})
    assert isinstance(judged, RecipeResults)
    assert [(f.code, f.engine) for f in judged.findings if f.severity == "error"] == [
        ("SPL001", "0.5.7"),
        ("SPL001", "0.5.23"),
    ]
    path.write_text(text.format("  # speclaunch: ignore[SPL001] a fork has it"))
    assert not check_recipe(load(str(path)), ("0.5.7",), Lookup(), all_rules(), {}).findings
