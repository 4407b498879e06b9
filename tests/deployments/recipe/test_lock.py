"""Locks: the record, its differences, its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.find_recipe import recipe_names, recipe_of_lock
from speclaunch.deployments.recipe.load import load, select_role
from speclaunch.deployments.recipe.lock import (
    Lock,
    LockedCertificate,
    LockedCheckpoint,
    LockedEngine,
    LockedHardware,
    LockedImage,
    lock_differences,
)
from speclaunch.deployments.recipe.lock_file import (
    accept_lengths,
    image_of,
    lock_and_recipe,
    lock_text,
    read_lock,
    recipe_differences,
    with_lock_differences,
)
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.packages import InstalledPackage
from speclaunch.engine.facts.weight_files import HashedFile
from tests.support.loops import each, rows

FILES = (HashedFile("config.json", 10, "sha256:a"), HashedFile("model.safetensors", 20, "sha256:b"))
LOCK = Lock(
    recipe="mine.yaml",
    resolved={"page_size": 1, "cuda_graph_bs_decode": [1, 2]},
    engine=LockedEngine(
        "0.5.23",
        "3.12.1",
        (
            InstalledPackage("torch", "2.13.0", "sha256:c"),
            InstalledPackage("triton", "3.5.1", None),
        ),
    ),
    checkpoints=(LockedCheckpoint("target", "m", "c0ffee", FILES),),
    hardware=LockedHardware("h100-80gb", 8, 81559, 90, "580.1", "AMD EPYC", 64, 512, "Linux"),
    image=LockedImage("lmsysorg/sglang:v0.5.23", "sha256:d"),
    certificates=(LockedCertificate("bench", "20261127-1-mine", "2026-11-27", "1.8 times"),),
)
TARGET = LOCK.checkpoints[0]


def engine(**changes: Any) -> Lock:
    return replace(LOCK, engine=replace(LOCK.engine, **changes))


def hardware(**changes: Any) -> Lock:
    assert LOCK.hardware is not None
    return replace(LOCK, hardware=replace(LOCK.hardware, **changes))


def target(**changes: Any) -> Lock:
    return replace(LOCK, checkpoints=(replace(TARGET, **changes),))


def packages(*some: InstalledPackage) -> Lock:
    return engine(packages=some)


TORCH, TRITON = LOCK.engine.packages
CHANGES = {
    "engine SGLang is 0.5.22, locked 0.5.23": engine(version="0.5.22"),
    "engine Python is 3.11.7, locked 3.12.1": engine(python="3.11.7"),
    "package torch is 2.12.0 (files sha256:c), locked 2.13.0 (files sha256:c)": packages(
        replace(TORCH, version="2.12.0"), TRITON
    ),
    "package torch is 2.13.0 (files sha256:d), locked 2.13.0 (files sha256:c)": packages(
        replace(TORCH, hash="sha256:d"), TRITON
    ),
    "package triton is missing: the lock has 3.5.1": packages(TORCH),
    "package xgrammar is 0.2.7, and the lock has none": packages(
        TORCH, TRITON, InstalledPackage("xgrammar", "0.2.7", None)
    ),
    "resolved value page_size is 64, locked 1": replace(
        LOCK, resolved={**LOCK.resolved, "page_size": 64}
    ),
    "resolved value cuda_graph_bs_decode is missing: the lock has [1, 2]": replace(
        LOCK, resolved={"page_size": 1}
    ),
    "checkpoint target is missing: the lock has m": replace(LOCK, checkpoints=()),
    "checkpoint draft is d, and the lock has none": replace(
        LOCK, checkpoints=(TARGET, LockedCheckpoint("draft", "d", None, FILES))
    ),
    "checkpoint target is missing: the lock has m ": target(files=()),
    "variable SGLANG_LOGGING_CONFIG is a.json, and the lock has none": replace(
        LOCK, variables={"SGLANG_LOGGING_CONFIG": "a.json"}
    ),
    "revision of m (target) is decaf, locked c0ffee": target(revision="decaf"),
    "weight file config.json of m (target) is 10 bytes sha256:z, locked 10 bytes sha256:a": target(
        files=(replace(FILES[0], hash="sha256:z"), FILES[1])
    ),
    "weight file model.safetensors of m (target) is missing: the lock has 20 bytes sha256:b": (
        target(files=FILES[:1])
    ),
    "image of deploy.image is lmsysorg/sglang:v0.5.23, locked lmsysorg/sglang:v0.5.23@sha256:d": (
        replace(LOCK, image=LockedImage("lmsysorg/sglang:v0.5.23"))
    ),
    "image of deploy.image is missing: the lock has lmsysorg/sglang:v0.5.23@sha256:d": replace(
        LOCK, image=None
    ),
    "hardware name is h200, locked h100-80gb": hardware(name="h200"),
    "hardware count is 4, locked 8": hardware(count=4),
    "hardware memory_mib is 40960, locked 81559": hardware(memory_mib=40960),
    "hardware capability is 80, locked 90": hardware(capability=80),
}


@rows("message", CHANGES)
def test_each_difference_is_named(message: str) -> None:
    (found,) = lock_differences(LOCK, CHANGES[message])
    assert (found.message, found.refuses) == (message.rstrip(), True)


@rows(
    "change",
    [{"driver": "590.2"}, {"cpu": "Xeon"}, {"cpus": 2}, {"memory_gib": 64}, {"system": "Linux 7"}],
)
def test_what_settings_do_not_depend_on_warns(change: dict[str, Any]) -> None:
    (found,) = lock_differences(LOCK, hardware(**change))
    assert next(iter(change)) in found.message
    assert not found.refuses


@rows(
    "unknown",
    [
        LOCK,
        replace(LOCK, hardware=None),
        hardware(driver=None),
        replace(LOCK, certificates=()),
    ],
)
def test_what_is_unknown_is_no_difference(unknown: Lock) -> None:
    assert not list(lock_differences(LOCK, unknown))


def written(folder: Path, name: str, *overrides: str) -> tuple[Path, str]:
    """The lock of a recipe in `folder`, as `lock_text` writes it."""
    recipe = select_role(load(name, overrides), None)
    prepared = prepare(recipe, dry_run=True)
    lock = replace(LOCK, recipe=Path(name).name, overrides=overrides, image=image_of(recipe))
    path = folder / f"{Path(name).stem}.lock.yaml"
    text = lock_text(prepared, lock, path)
    path.write_text(text)
    return path, text


@pytest.mark.thorough
def test_a_lock_of_each_shipped_recipe_renders_the_same(tmp_path: Path) -> None:
    def check(name: str) -> None:
        recipe = load(name)
        if len(recipe.parts) > 1:
            return
        path, text = written(tmp_path, name)
        locked = read_lock(path)
        version = locked.deployment.engine.version
        before, after = (prepare(one, version, dry_run=True) for one in (recipe, locked))
        assert before.rendered_args.arguments == after.rendered_args.arguments
        assert before.overlay == after.overlay
        assert locked.deployment.lock == replace(LOCK, recipe=name, image=image_of(recipe))
        assert "defaults:" not in text

    each(sorted(recipe_names()), check, str)


OWN = """\
args:
  model_path: m
  api_key: sk-9f2c1e7ab04d7777
  speculative_algorithm: NGRAM
  speculative_num_draft_tokens: 8
  mem_fraction_static: 1e-1
  json_model_override_args: '{"a": "${b}"}'
engine:
  version: "0.5.23"
  env:
    HF_TOKEN: hf_qWmZkTbYcRdLsVpNuXoJ
    NCCL_DEBUG: INFO
    UNWANTED: null
launch:
  grace_seconds: 2
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.replace("${", "\\${"))
    return path


def test_a_lock_holds_no_secrets_and_names_their_variables(own: Path) -> None:
    path, text = written(own.parent, str(own))
    assert "sk-9f" not in text
    assert "hf_qW" not in text
    assert "api_key: ${oc.env:API_KEY}" in text
    assert "HF_TOKEN: ${oc.env:HF_TOKEN}" in text
    assert not list(recipe_differences(load(str(own)), read_lock(path)))


def test_a_lock_is_read_back_exactly(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-9f2c1e7ab04d7777")
    monkeypatch.setenv("HF_TOKEN", "hf_qWmZkTbYcRdLsVpNuXoJ")
    path, text = written(own.parent, str(own))
    recipe, locked = load(str(own)).deployment, read_lock(path).deployment
    assert list(recipe.args.items()) == list(locked.args.items())
    assert list(recipe.engine.env.items()) == list(locked.engine.env.items())
    assert (recipe.name, recipe.engine.version) == (locked.name, locked.engine.version)
    assert locked.launch.grace_seconds == 2
    assert text == written(own.parent, str(own))[1]


def test_a_variable_of_the_recipe_is_its_value_in_the_lock(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write_text("args: {model_path: m, tp_size: '${oc.env:TP,2}'}\n")
    monkeypatch.setenv("TP", "4")
    path, text = written(own.parent, str(own))
    assert "tp_size: '4'" in text
    monkeypatch.setenv("TP", "8")
    (found,) = recipe_differences(load(str(own)), read_lock(path))
    assert found.message == "argument tp_size is 8, locked 4"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("lock: {recipe: a.yaml}", "lock: object missing required field `engine`"),
        ("lock: {recipe: a, engine: {version: 1}}", "lock: engine.version: Expected `str`"),
        ("lock: {recipe: a, engine: {version: a, x: 1}}", "unknown field `x`"),
        ("lock: {format: 2, recipe: a, engine: {version: a}}", "lock: format 2 is unknown"),
        ("lock: []", "lock: "),
    ],
)
def test_a_damaged_record_is_a_problem_with_its_place(
    tmp_path: Path, section: str, message: str
) -> None:
    path = tmp_path / "a.lock.yaml"
    path.write_text(f"args: {{model_path: m}}\n{section}\n")
    with pytest.raises(InputError) as caught:
        read_lock(path)
    (problem,) = caught.value.problems
    assert message.lower() in problem.message.lower()
    assert problem.place is not None
    assert problem.place.line == 2


def test_a_recipe_is_no_lock(own: Path) -> None:
    with pytest.raises(InputError, match="is not a lock"):
        read_lock(own)
    with pytest.raises(InputError, match=r"no lock .*mine\.lock\.yaml"):
        read_lock(load(str(own)).lock_path)


def test_the_name_of_a_lock_follows_its_recipe(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(str(own)).lock_path == tmp_path / "mine.lock.yaml"
    assert load("cpu_ngram").lock_path == tmp_path / "cpu_ngram.lock.yaml"
    own.write_text("args: {model_path: m}\nroles: {prefill: {}, decode: {}}\n")
    (prefill, _) = load(str(own)).parts
    assert prefill.lock_path == tmp_path / "mine.prefill.lock.yaml"
    for name in ("mine.lock.yaml", "mine.prefill.lock.yaml"):
        assert recipe_of_lock(str(tmp_path / name)) == str(own)
        assert recipe_of_lock(name) == "mine.yaml"
    assert recipe_of_lock("other.lock.yaml") is recipe_of_lock("mine.yaml") is None


def test_the_ranks_of_a_server_share_a_lock(own: Path) -> None:
    own.write_text("args: {model_path: m, tp_size: 2, nnodes: 2}\n")
    first = ("args.node_rank=0", "args.dist_init_addr=a:20000")
    path, _ = written(own.parent, str(own), *first)
    second = ("args.node_rank=1", "++args.dist_init_addr=b:20000")
    lock, recipe = lock_and_recipe(load(str(own), second), second)
    assert (lock.path, lock.deployment.args["node_rank"]) == (path, 1)
    assert not list(recipe_differences(recipe, lock))
    more = (*second, "args.tp_size=4")
    lock, recipe = lock_and_recipe(load(str(own), more), more)
    (found,) = recipe_differences(recipe, lock)
    assert found.message == "argument tp_size is 4, locked 2"
    own_values = [
        replace(LOCK, resolved={"node_rank": n}, variables={"SGLANG_HOST_IP": f"{n}"})
        for n in (0, 1)
    ]
    assert not list(lock_differences(*own_values))


def test_a_lock_is_no_recipe_name(tmp_path: Path, own: Path) -> None:
    written(tmp_path, str(own))
    assert "mine" in recipe_names([tmp_path])
    assert "mine.lock" not in recipe_names([tmp_path])


@pytest.mark.thorough
def test_overrides_in_a_lock_belong_to_its_recipe(own: Path) -> None:
    path, _ = written(own.parent, str(own), "args.mem_fraction_static=0.5")
    _, same = lock_and_recipe(load(str(own)))
    assert not list(recipe_differences(same, read_lock(path)))
    word = "++args.mem_fraction_static=0.6"
    lock, other = lock_and_recipe(load(str(own), [word]), [word])
    (found,) = recipe_differences(other, lock)
    assert found.message == "argument mem_fraction_static is 0.6, locked 0.5"
    _, of_lock = lock_and_recipe(load(str(path)))
    assert of_lock.path == own
    own.unlink()
    lock, alone = lock_and_recipe(load(str(path), ["args.mem_fraction_static=0.7"]))
    (found,) = recipe_differences(alone, lock)
    assert found.found == "0.7"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "is_same"),
    [
        ((), True),
        (("++args.mem_fraction_static=0.5", "++args.port=4"), True),
        (("args.speculative_num_draft_tokens=4",), False),
        (("args.model_path=other",), False),
    ],
)
def test_acceptance_lengths_are_those_of_a_lock_with_the_same_speculation(
    own: Path, words: tuple[str, ...], is_same: bool
) -> None:
    recipe = load(str(own), words)
    assert accept_lengths(recipe) == {}
    path, text = written(own.parent, str(own))
    assert accept_lengths(recipe) == {}  # a lock without lengths, as earlier releases wrote it
    smoke = "    - {kind: smoke, accept_length: 2.5}\n"
    path.write_text(text.replace("  certificates:\n", f"  certificates:\n{smoke}"))
    assert accept_lengths(recipe) == ({"smoke": 2.5} if is_same else {})
    assert accept_lengths(load(str(path))) == {"smoke": 2.5}
    path.write_text("lock: 3\n")
    assert accept_lengths(recipe) == {}


def test_a_lock_of_another_program_is_ignored(own: Path) -> None:
    path = own.with_name("mine.lock.yaml")
    path.write_text("version: 3\nmodels: []\n")
    assert with_lock_differences(load(str(own))).lock_differences == ()
    path.write_text("lock: 3\n")
    (problem,) = with_lock_differences(load(str(own))).lock_differences
    assert "cannot be compared" in problem.message
