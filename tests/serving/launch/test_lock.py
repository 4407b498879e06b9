"""Locks of a machine: one planted change each, and all of them named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core.errors import InputError, LaunchError
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.recipe.lock import LockDifference, LockedCertificate
from speclaunch.deployments.recipe.lock_file import lock_and_recipe, read_lock
from speclaunch.deployments.targets.prepare import Prepared, prepare
from speclaunch.engine.facts import weight_files
from speclaunch.engine.facts.find_checkpoint import gather
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.facts.weight_files import hash_files
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.serving.launch import lock as locks
from speclaunch.serving.launch.session import Session
from tests.support.serving.launch import fake_sglang

PLANTS_OF_A_KIND = 20
TARGET, DRAFT = "acme/target", "acme/draft"
COMMIT, OTHER = "c0ffee" * 6 + "abcd", "decaf0" * 6 + "abcd"
IMAGE = "registry.example/sglang:v0.5.23@sha256:" + "a" * 64
FLAGS = {
    "max_running_requests": 32,
    "mem_fraction_static": 0.7,
    "chunked_prefill_size": 4096,
    "page_size": 16,
    "context_length": 8192,
    "max_total_tokens": 65536,
    "schedule_policy": "fcfs",
    "random_seed": 7,
    "watchdog_timeout": 300,
    "log_level": "info",
}
CHANGED = {"schedule_policy": "lpm", "log_level": "debug", "mem_fraction_static": 0.6}
ADDED = {
    "tp_size": 2,
    "trust_remote_code": "true",
    "served_model_name": "m",
    "disable_radix_cache": "true",
    "stream_interval": 4,
}
RECIPE = """\
name: planted
engine:
  version: "0.5.23"
  python: {python}
args:
  model_path: {target}
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: {draft}
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
{flags}
deploy:
  image: {image}
recovery:
  policy: budget
"""


def distribution(site: Path, name: str, version: str, content: str = "0") -> None:
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "RECORD").write_text(
        f"{name}/__init__.py,sha256={content},1\n"
        f"../../bin/{name},sha256=of-this-folder,1\n"
        f"{metadata.name}/INSTALLER,sha256=pip,3\n{metadata.name}/RECORD,,\n"
    )


def checkpoint(hub: Path, name: str, commit: str) -> Path:
    folder = hub / f"models--{name.replace('/', '--')}" / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    for number in range(4):
        (folder / f"model-{number}.safetensors").write_bytes(bytes([number]) * 64)
    refs = folder.parent.parent / "refs"
    refs.mkdir(exist_ok=True)
    (refs / "main").write_text(commit)
    return folder


class Machine(Struct):
    """A machine with an engine, two checkpoints and a recipe, all in one folder."""

    folder: Path
    recipe: Path

    @property
    def site(self) -> Path:
        return self.folder / "engine" / "site"

    @property
    def hub(self) -> Path:
        return self.folder / "hub"

    def snapshot(self, name: str) -> Path:
        return self.hub / f"models--{name.replace('/', '--')}" / "snapshots" / COMMIT

    def plan(self, prepared: Prepared) -> Plan:
        facts = gather(TARGET, DRAFT, hardware=declare("h100:8"))
        return resolve(prepared.request(os.environ), facts)

    def write_lock(self) -> Path:
        recipe = load(str(self.recipe))
        prepared = prepare(recipe)
        return locks.write_lock(prepared, self.plan(prepared), locks.lock_request(recipe, ()))

    def differences(self, *, verify: bool = False) -> tuple[LockDifference, ...]:
        lock, recipe = lock_and_recipe(load(str(self.recipe)))
        prepared = prepare(lock)
        return locks.differences_now(lock, recipe, prepared, self.plan(prepared), verify=verify)


def make(folder: Path) -> Machine:
    python = fake_sglang.install(folder / "engine")
    for number in range(PLANTS_OF_A_KIND):
        distribution(folder / "engine" / "site", f"package{number}", f"1.{number}.0")
    for name in (TARGET, DRAFT):
        checkpoint(folder / "hub", name, COMMIT)
    recipe = folder / "planted.yaml"
    flags = "\n".join(f"  {name}: {value}" for name, value in FLAGS.items())
    recipe.write_text(
        RECIPE.format(python=python, target=TARGET, draft=DRAFT, flags=flags, image=IMAGE)
    )
    return Machine(folder, recipe)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("machine") / "here"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(folder / "hub"))
        patch.setenv("SPECLAUNCH_HOME", str(folder / "home"))
        make(folder).write_lock()
        yield folder


@pytest.fixture
def machine(original: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The machine on which the lock was written; all changes are undone afterwards."""
    monkeypatch.setenv("SPECLAUNCH_HOME", str(original / "home"))
    backup = original.with_name("backup")
    shutil.copytree(original, backup, symlinks=True)
    yield Machine(original, original / "planted.yaml")
    shutil.rmtree(original)
    backup.rename(original)


Plant = Callable[[Machine, int], str]


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, (old, text)
    path.write_text(text.replace(old, new))


def package(machine: Machine, number: int) -> str:
    """Another version, other files of the same version, or no package any more."""
    name, version = f"package{number}", f"1.{number}.0"
    shutil.rmtree(machine.site / f"{name}-{version}.dist-info")
    if number % 3 == 0:
        distribution(machine.site, name, f"2.{number}.0")
    elif number % 3 == 1:
        distribution(machine.site, name, version, content="1")
    return f"package {name} "


def flag(machine: Machine, number: int) -> str:
    """Another value, a flag that is gone, or a new flag."""
    names = list(FLAGS)
    if number < 10:
        name = names[number]
        new = CHANGED.get(name) or int(FLAGS[name]) * 2  # type: ignore[call-overload]
        replace_text(machine.recipe, f"  {name}: {FLAGS[name]}\n", f"  {name}: {new}\n")
    elif number < 15:
        name = names[number - 10]
        replace_text(machine.recipe, f"  {name}: {FLAGS[name]}\n", "")
    else:
        name = list(ADDED)[number - 15]
        replace_text(machine.recipe, "args:\n", f"args:\n  {name}: {ADDED[name]}\n")
    return f"argument {name} "


def weights(machine: Machine, number: int) -> str:
    """A byte, the length, a missing file or a new file, of the target or of the draft."""
    name = TARGET if number % 2 else DRAFT
    file = machine.snapshot(name) / f"model-{number % 4}.safetensors"
    if number < 8:
        data = bytearray(file.read_bytes())
        data[number * 7] ^= 1
        file.write_bytes(data)
    elif number < 12:
        file.write_bytes(file.read_bytes() + b"x")
    elif number < 16:
        file.unlink()
    else:
        file = file.with_name(f"extra-{number}.py")
        file.write_text("code of the checkpoint")
    return f"weight file {file.name} of {name} "


def revision(machine: Machine, number: int) -> str:
    """The branch of a checkpoint at another commit with the same files."""
    name = TARGET if number % 2 else DRAFT
    commit = f"{number:02x}{OTHER[2:]}"
    folder = machine.snapshot(name)
    shutil.copytree(folder, folder.with_name(commit))
    (folder.parent.parent / "refs" / "main").write_text(commit)
    return f"revision of {name} "


def image(machine: Machine, number: int) -> str:
    """Another digest, tag or registry."""
    digest = f"{number:x}".rjust(2, "b") + "a" * 62
    new = (
        IMAGE.replace("a" * 64, digest),
        IMAGE.replace("v0.5.23", f"v0.5.{number}"),
        IMAGE.replace("registry", f"registry{number}"),
    )[number % 3]
    replace_text(machine.recipe, IMAGE, new)
    return "image "


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("number", range(PLANTS_OF_A_KIND))
@pytest.mark.parametrize("plant", [package, flag, weights, revision, image])
def test_a_planted_change_is_named_and_nothing_else(
    machine: Machine, plant: Plant, number: int
) -> None:
    name = plant(machine, number)
    found = machine.differences()
    assert [difference.message for difference in found if difference.message.startswith(name)]
    assert len(found) == 1, [difference.message for difference in found]
    assert found[0].refuses


@pytest.mark.thorough
def test_an_unchanged_machine_does_not_differ(machine: Machine) -> None:
    assert machine.differences() == ()
    assert machine.differences(verify=True) == ()
    before = load(str(machine.recipe)).lock_path.read_text()
    assert machine.write_lock().read_text() == before


@pytest.mark.thorough
def test_recovery_steps_are_in_a_lock_and_a_lock_takes_none(machine: Machine) -> None:
    recipe, steps = load(str(machine.recipe)), {"mem_fraction_static": 0.6, "page_size": 32}
    before = prepare(recipe)
    served = before.changed(steps)
    plan = machine.plan(served)
    lock = read_lock(locks.write_lock(served, plan, locks.lock_request(recipe, ()), steps))
    assert lock.deployment.lock is not None
    assert lock.deployment.lock.steps == steps
    assert prepare(lock).rendered_args.arguments == served.rendered_args.arguments
    assert machine.differences() == ()
    assert Session(before, plan.facts, []).recovers
    assert not Session(prepare(lock), plan.facts, []).recovers


@pytest.mark.thorough
def test_a_lock_has_the_acceptance_length_of_its_launch(machine: Machine) -> None:
    recipe = load(str(machine.recipe))
    prepared = prepare(recipe)
    bench = LockedCertificate("bench", "b", "2026-11-27", "pays", 3.25)
    request = replace(locks.lock_request(recipe, ()), certificates=(bench,))
    session = Session(prepared, machine.plan(prepared).facts, [], lock=request)
    smoke = LockedCertificate("smoke", accept_length=2.667)
    for changes, length, expected in (
        ({}, 8 / 3, (bench, smoke)),
        ({}, None, (bench,)),
        ({"mem_fraction_static": 0.6}, 8 / 3, (smoke,)),
    ):
        lock = read_lock(session.write_lock(changes, length)).deployment.lock
        assert lock is not None and lock.certificates == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("+args.api_key=sk-9f2c1e7ab04d", "+args.api_key=${oc.env:API_KEY}"),
        ("args.api_key=${oc.env:OTHER}", "args.api_key=${oc.env:OTHER}"),
        ("engine.env.HF_TOKEN=hf_abcdefgh", "engine.env.HF_TOKEN=${oc.env:HF_TOKEN}"),
    ],
)
def test_a_secret_of_an_override_is_stored_as_a_reference(
    machine: Machine, word: str, stored: str
) -> None:
    recipe = load(str(machine.recipe))
    assert locks.lock_request(recipe, ("args.tp_size=1", word)).overrides == (
        "args.tp_size=1",
        stored,
    )


@pytest.mark.thorough
def test_only_verify_finds_a_change_that_leaves_size_and_time(machine: Machine) -> None:
    assert machine.differences() == ()
    file = machine.snapshot(TARGET) / "model-0.safetensors"
    found = file.stat()
    file.write_bytes(b"x" * found.st_size)
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert machine.differences() == ()
    (difference,) = machine.differences(verify=True)
    assert difference.message.startswith("weight file model-0.safetensors of acme/target")


@pytest.mark.thorough
def test_a_checkpoint_that_is_gone_is_one_difference(machine: Machine) -> None:
    shutil.rmtree(machine.snapshot(DRAFT))
    found = [difference.message for difference in machine.differences()]
    assert found == [f"checkpoint draft is missing: the lock has {DRAFT}"]


@pytest.mark.thorough
def test_a_lock_replaces_no_other_file(machine: Machine) -> None:
    path = load(str(machine.recipe)).lock_path
    path.write_text("not: ours\n")
    with pytest.raises(InputError, match="is not a lock"):
        machine.write_lock()
    assert path.read_text() == "not: ours\n"


@pytest.mark.thorough
def test_a_folder_that_cannot_be_written_is_an_error(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = load(str(machine.recipe)).lock_path
    before = path.read_text()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(locks, "replace_file", fail)
    with pytest.raises(LaunchError, match=r"cannot write .*No space left"):
        machine.write_lock()
    assert path.read_text() == before


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    folder = checkpoint(tmp_path / "hub", TARGET, COMMIT)
    (folder / "README.md").write_text("not a part")
    (folder / ".hidden").write_text("not a part")
    (folder / "sub").mkdir()
    (folder / "sub" / "link.json").symlink_to(folder / "config.json")
    read: list[str] = []
    digest = weight_files._digest

    def counted(file: Path) -> str:
        read.append(file.name)
        return digest(file)

    monkeypatch.setattr(weight_files, "_digest", counted)

    def files(*, verify: bool = False) -> list[str]:
        read.clear()
        found = hash_files(folder, verify=verify)
        read.sort()
        return [file.name for file in found]

    names = ["config.json", *(f"model-{n}.safetensors" for n in range(4))]
    expected = [*names, "sub/link.json"]
    assert files() == expected
    assert read == sorted([*names, "link.json"])
    assert files() == expected
    assert not read
    (folder / "model-2.safetensors").write_bytes(b"longer than before" * 9)
    assert files() == expected
    assert read == ["model-2.safetensors"]
    assert files(verify=True) == expected
    assert len(read) == len(expected)
    for damaged in ("damaged", '{"files": {"a": 1}}', '{"files": []}'):
        (tmp_path / "home" / "state" / "file-hashes.json").write_text(damaged)
        assert files() == expected
        assert len(read) == len(expected)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert hash_files(tmp_path) == ()
    with pytest.raises(LaunchError, match="cannot read"):
        hash_files(tmp_path / "nowhere")
