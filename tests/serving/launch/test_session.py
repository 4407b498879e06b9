"""What a launch is made of: commands with changes, recipe diffs, GPUs, the end in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import LaunchError
from speclaunch.core.files import json_value, replace_file
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import Prepared, prepare
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import Gpu, Hardware, Vendor
from speclaunch.serving.launch import inputs
from speclaunch.serving.launch.inputs import engine_argv, engine_environment, secrets_file_of
from speclaunch.serving.launch.session import Session

GIB = 1 << 30


def prepared(*overrides: str, recipe: str = "eagle3_llama8b", version: str = "0.5.23") -> Prepared:
    return prepare(load(recipe, overrides), version, dry_run=True)


def session(*overrides: str, gpus: int = 8) -> Session:
    found = tuple(Gpu(index, "H100", 80 * GIB) for index in range(gpus))
    hardware = Hardware("H100", Vendor.NVIDIA, gpus, 81559, 90, gpus=found, declared=False)
    ready = prepared(*overrides)
    return Session(ready, Facts(hardware=hardware if gpus else None), overrides)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("version", "flag"),
    [("0.5.11", "--cuda-graph-max-bs"), ("0.5.23", "--cuda-graph-max-bs-decode")],
)
def test_changes_are_spelled_for_the_version_whatever_the_recipe_called_them(
    version: str, flag: str
) -> None:
    for given in ("cuda_graph_max_bs", "cuda_graph_max_bs_decode"):
        before = prepared("~args.cuda_graph_max_bs_decode", f"+args.{given}=64", version=version)
        after = before.changed({"cuda_graph_max_bs_decode": 8})
        words = engine_argv(after, None)
        assert words[words.index(flag) + 1] == "8"
        assert sum("cuda-graph-max-bs" in word for word in words) == 1
        assert "64" in engine_argv(before, None)


def test_none_leaves_the_engines_default() -> None:
    before = prepared("args.mem_fraction_static=0.7")
    assert "--mem-fraction-static" in engine_argv(before, None)
    assert "--mem-fraction-static" not in engine_argv(
        before.changed({"mem_fraction_static": None}), None
    )


def test_what_a_version_cannot_be_told_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"SGLang 0\.5\.23 cannot start with these arguments"):
        prepared().changed({"no_such_argument": 1})


@pytest.mark.thorough
def test_a_recipe_diff_gives_the_same_start() -> None:
    changes = {
        "mem_fraction_static": 0.65,
        "cuda_graph_max_bs_decode": 8,
        "cuda_graph_bs_decode": [1, 2, 4],
        "attention_backend": "fa3",
        "max_running_requests": None,
    }
    base = ("~args.cuda_graph_max_bs_decode", "+args.cuda_graph_max_bs=64")
    ready = prepared(*base)
    words = inputs.recipe_diff(changes, ready.recipe.deployment)
    assert "~args.cuda_graph_max_bs" in words
    replayed = prepared(*base, *words)
    assert sorted(engine_argv(replayed, None)) == sorted(engine_argv(ready.changed(changes), None))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("overrides", "gpus"),
    [
        (["++args.tp_size=1"], [0]),
        (["++args.tp_size=2", "++args.base_gpu_id=4"], [4, 5]),
        (["++args.tp_size=2", "++args.gpu_id_step=2"], [0, 2]),
        (["++args.tp_size=2", "++args.dp_size=2"], [0, 1, 2, 3]),
        # a stage begins tp_size further on, whatever the step is (0.5.23 entrypoints/engine.py:935)
        (["++args.tp_size=2", "++args.pp_size=2", "++args.gpu_id_step=2"], [0, 2, 4]),
        (["++args.tp_size=4", "++args.pp_size=2"], [0, 1, 2, 3, 4, 5, 6, 7]),
        # a stage begins tp_size further on, whatever the step is
        (["++args.tp_size=2", "++args.pp_size=2", "++args.gpu_id_step=2"], [0, 2, 4]),
        (["++args.tp_size=16", "++args.nnodes=2"], [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_gpus_that_are_locked(overrides: list[str], gpus: list[int]) -> None:
    locks = session(*overrides)._locks()
    assert [name for name in locks if name.startswith("gpu-")] == [f"gpu-{i}" for i in gpus]
    shared = session(*overrides, "launch.share_gpus=true")._locks()
    assert not any(name.startswith("gpu-") for name in shared)


@pytest.mark.thorough
def test_one_host_of_several_recovers_with_the_others_or_not_at_all(tmp_path: Path) -> None:
    hosts = ["++args.tp_size=16", "++args.nnodes=2", "recovery=default"]
    assert session("recovery=default").recovers
    alone = session(*hosts)
    assert not alone.recovers and alone.ladder() is None and alone.predicted_rung() is None
    assert "launch.agreement.directory" in alone.forecast()[1]
    together = session(*hosts, f"launch.agreement.directory={tmp_path}")
    assert together.recovers and together.ladder() is not None


def test_gpus_that_are_not_known_are_not_locked() -> None:
    assert [n for n in session(gpus=0)._locks() if n.startswith("gpu-")] == []


def test_the_memory_of_a_cpu_is_no_gpu() -> None:
    host = Hardware("cpu", Vendor.CPU, gpus=(Gpu(0, "memory", 64 * GIB),), declared=False)
    locks = replace(session(), facts=Facts(hardware=host))._locks()
    assert not any(name.startswith("gpu-") for name in locks)


def test_a_visible_subset_keeps_its_own_numbers() -> None:
    one = session("++args.tp_size=2", gpus=2)
    hardware = one.facts.hardware
    assert hardware is not None
    moved = replace(hardware, gpus=tuple(replace(g, index=g.index + 6) for g in hardware.gpus))
    locks = replace(one, facts=Facts(hardware=moved))._locks()
    assert [name for name in locks if name.startswith("gpu-")] == ["gpu-6", "gpu-7"]


def test_the_engine_does_not_hear_the_service_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("WATCHDOG_USEC", "1")
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & engine_environment(prepared()).keys()


def test_what_a_journal_begins_with_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "sk-inherited")
    overrides = ["+args.api_key=sk-argument", "+engine.env.MY_KEY=sk-variable"]
    ready = prepared(*overrides)
    plan = Session(ready, Facts(), overrides).plan_with({})
    text = json.dumps(
        [
            json_value(inputs.header(ready, plan, None, overrides)),
            inputs.command(ready),
            inputs.environment(ready),
        ]
    )
    assert "sk-" not in text
    assert '"args.api_key=***"' not in text and "+args.api_key=***" in text
    secrets = secrets_file_of(ready, tmp_path)
    assert secrets is not None
    for _ in range(2):  # each attempt writes them anew
        replace_file(*secrets)
        assert secrets[0].stat().st_mode & 0o077 == 0
