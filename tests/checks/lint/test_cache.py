"""What lint remembers: the same to the byte as what it would find, whatever happened in between."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from speclaunch.checks.lint import cache as cache_module
from speclaunch.checks.lint import lint_files
from speclaunch.core import files
from speclaunch.core.files import trim_entries
from speclaunch.core.reads import Reads, states
from tests.checks.lint.linting import ALL, ENGINE, GROUP, RECIPE, Place, Said, config
from tests.support.work import calls


@pytest.mark.thorough
def test_what_is_remembered_is_what_was_found(place: Place) -> None:
    fresh = place.fresh(*ALL)
    assert not (place.home / "lint").exists()
    assert {"SPL806", "SPL000", "SPL091", "SPL092"} <= set(fresh.out.replace("]", "[").split("["))
    first, second = place.lint(*ALL), place.lint(*ALL)
    assert fresh == first == second
    assert len(place.entries) > 8
    as_json = place.fresh("--output-format", "json", *ALL)
    assert place.lint("--output-format", "json", *ALL) == as_json


def checks_nothing() -> None:
    """From here on checking a file fails."""

    def refuse(*_: object) -> None:
        raise AssertionError("a file was checked")

    lint_files.LintRun._check = refuse  # type: ignore[assignment,method-assign]


@pytest.mark.thorough
def test_nothing_is_checked_twice(place: Place) -> None:
    some = ("--config-dir", "groups", "recipes", "serve.sh", "config.sh", "chart.yaml", "start.py")
    first = place.lint(*some)
    assert place.lint(*some, before=checks_nothing) == first
    without = place.lint("--no-cache", *some, before=checks_nothing)
    assert "a file was checked" in without.err
    switched_off = place.lint(*some, before=checks_nothing, env={"SPECLAUNCH_NO_CACHE": "1"})
    assert "a file was checked" in switched_off.err
    other = place.lint("--engine", "0.5.10", *some, before=checks_nothing)
    assert "a file was checked" in other.err


@pytest.mark.thorough
def test_a_file_named_twice_is_told_as_without_a_cache(place: Place) -> None:
    twice = ("quiet.sh", "quiet.sh")
    fresh = place.fresh(*twice)
    assert place.lint(*twice) == fresh == place.lint(*twice)


def rewrite(place: Place, name: str, old: str, new: str) -> None:
    path = place.folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def same_size_and_time(place: Place) -> None:
    path = place.folder / "groups/speculation/mine.yaml"
    before = path.stat()
    beside = path.with_name("beside")
    beside.write_text(path.read_text().replace("tokens: 8", "tokens: 0"))
    assert beside.stat().st_size == before.st_size
    os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
    beside.replace(path)


def in_place(place: Place) -> None:
    path = place.folder / "groups/speculation/mine.yaml"
    before = path.stat()
    rewrite(place, "groups/speculation/mine.yaml", "tokens: 8", "tokens: 0")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Place], object]] = {
    "a group": lambda p: rewrite(p, "groups/speculation/mine.yaml", "NGRAM", "NO_SUCH"),
    "a group that goes before ours": lambda p: p.write("groups/base.yaml", "args: {tp_siz: 1}\n"),
    "a group beside the recipe": lambda p: p.write(
        "recipes/speculation/mine.yaml", GROUP.format(algorithm="NO_SUCH")
    ),
    "a group is gone": lambda p: (p.folder / "groups/speculation/mine.yaml").unlink(),
    "a checkpoint": lambda p: p.write("models/own/config.json", config(vocabulary=0)),
    "a checkpoint is gone": lambda p: (p.folder / "models/own/config.json").unlink(),
    "a checkpoint appears": lambda p: p.write("drafts/one/config.json", config()),
    "a file of a checkpoint appears": lambda p: p.write(
        "models/own/hf_quant_config.json", '{"quantization": {"quant_algo": "NVFP4"}}'
    ),
    "a followed file": lambda p: rewrite(p, "server.yaml", "tokens: 4", "tokens: -4"),
    "a followed file is gone": lambda p: (p.folder / "server.yaml").unlink(),
    "a nearer followed file": lambda p: p.write("recipes/server.yaml", "tp-size: 2"),
    "speclaunch.toml above": lambda p: (p.folder.parent / "speclaunch.toml").write_text(
        '[assume]\n"org/model" = "Qwen/Qwen3-8B"\n'
    ),
    "speclaunch.toml is wrong": lambda p: p.write("speclaunch.toml", "[assumed]\n"),
    "rules are chosen": lambda p: p.write("speclaunch.toml", 'ignore = ["SPL1"]\n'),
    "rules are chosen, in pyproject.toml": lambda p: p.write(
        "recipes/pyproject.toml", '[tool.speclaunch]\nignore = "SPL1"\n'
    ),
    "hardware": lambda p: p.write("roles/speclaunch.toml", 'hardware = "t4"\n'),
    "versions of some files": lambda p: p.write(
        "speclaunch.toml", '[[overrides]]\npaths = ["*.sh"]\nengine = "0.5.12,0.5.20"\n'
    ),
    "an extended file": lambda p: [
        p.write("other.toml", ""),
        p.write("speclaunch.toml", 'extend = "other.toml"\n'),
        p.lint(*ALL),
        p.write("other.toml", 'select = "SPL0"\n'),
    ],
    "an entry of .speclaunch/models": lambda p: p.write(
        ".speclaunch/models/org/model.json",
        '{"format": 1, "model": "org/model", "kind": "disk", "source": "s", "read": "2026-01-01",'
        f' "config": {config()}}}',
    ),
    "the repository ends here": lambda p: (p.folder / ".git").mkdir(),
    "a hub cache": lambda p: [
        (p.home / ".cache/huggingface/hub/models--org--model/snapshots/c0ffee").mkdir(parents=True),
        (
            p.home / ".cache/huggingface/hub/models--org--model/snapshots/c0ffee/config.json"
        ).write_text(config()),
    ],
    "a chart": lambda p: p.write("Chart.yaml", "name: x\n"),
    "same size and time, replaced": same_size_and_time,
    "same size and time, in place": in_place,
    "the file itself": lambda p: rewrite(p, "serve.sh", "--tp-size 3", "--tp-size 4"),
    "only its time": lambda p: os.utime(p.folder / "serve.sh"),
    "an own catalogue": lambda p: [
        (p.home / "catalogue").mkdir(),
        (p.home / "catalogue" / f"{ENGINE}.json").write_text(
            json.dumps({"version": ENGINE, "arguments": {}, "variables": {}})
        ),
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_noticed(place: Place, change: Callable[[Place], object]) -> None:
    place.lint(*ALL)
    change(place)
    assert place.lint(*ALL) == place.fresh(*ALL)


@pytest.mark.thorough
def test_most_of_the_changes_make_a_difference(place: Place) -> None:
    """So that the test above can fail."""
    before = place.fresh(*ALL)
    changed = ("a group", "a checkpoint appears", "a followed file", "a chart")
    for name in (*changed, "hardware", "versions of some files", "an extended file"):
        CHANGES[name](place)
        after = place.fresh(*ALL)
        assert after != before, name
        before = after


@pytest.mark.thorough
@pytest.mark.parametrize("written", ["${oc.env:MINE,NGRAM}", "${env_or:MINE,NGRAM}"])
def test_a_variable_of_a_recipe(place: Place, written: str) -> None:
    text = RECIPE.format(name="v", engine=ENGINE, model="m", tp=1)
    place.write("v.yaml", f"{text}  speculative_algorithm: {written}\n")
    for env in ({}, {"MINE": "NO_SUCH"}, {"MINE": ""}, {"MINE": "EAGLE"}, {}):
        said = place.lint(*ALL, "v.yaml", env=env)
        assert said == place.fresh(*ALL, "v.yaml", env=env)
        assert "NO_SUCH" not in "".join(path.read_text() for path in place.entries) or env


@pytest.mark.thorough
def test_a_variable_that_only_a_name_computes(place: Place) -> None:
    text = RECIPE.format(name="v", engine=ENGINE, model="m", tp=1)
    place.write("v.yaml", f"{text}  speculative_algorithm: ${{oc.${{name}}:MINE}}\n")
    rewrite(place, "v.yaml", "name: v", "name: env")
    for value in ("NGRAM", "NO_SUCH"):
        said = place.lint(*ALL, env={"MINE": value})
        assert said == place.fresh(*ALL, env={"MINE": value})


@pytest.mark.thorough
def test_a_touched_file_is_still_known(place: Place) -> None:
    """A checkout gives all files new times."""
    some = ("--config-dir", "groups", "recipes/r0.yaml", "recipes/r1.yaml")
    first = place.lint(*some)
    for path in place.folder.rglob("*.yaml"):
        text = path.read_text()
        path.unlink()
        path.write_text(text)
    assert place.lint(*some, before=checks_nothing) == first


@pytest.mark.thorough
def test_the_installed_engine(place: Place, tmp_path: Path) -> None:
    """Another python on PATH, with another SGLang, counts from then on."""
    for version in ("0.5.20", "0.5.12"):
        program = tmp_path / "bin" / "python3"
        program.parent.mkdir(exist_ok=True)
        told = {"python": "3.11.7", "packages": {"sglang": version}, "sglang": None}
        told |= {"executable": str(program), "path": []}
        program.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
        program.chmod(0o755)
        env = {"PATH": f"{program.parent}:/usr/bin:/bin", "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
        said = place.lint("serve.sh", env=env)
        assert f"(SGLang {version}" in said.out
        assert place.fresh("serve.sh", env=env) == said


@pytest.mark.thorough
def test_no_secret_is_kept(place: Place) -> None:
    place.lint(*ALL)
    kept = "".join(path.read_text() for path in place.entries)
    assert "sk-4711ffe8a9" not in kept
    assert "SPL806" not in kept


@pytest.mark.thorough
def test_the_cache_is_for_this_user_alone(place: Place) -> None:
    place.lint(*ALL)
    assert {path.stat().st_mode & 0o777 for path in place.entries} == {0o600}
    folders = [place.home / "lint", *(path.parent for path in place.entries)]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def hostile(text: str) -> list[bytes]:
    """What may stand in an entry: cut, changed, of another form, made to hurt."""
    digest, _, payload = text.partition("\n")
    document = json.loads(payload)
    values = [
        *(None, 1, [], {}, "x", [True], [False, None, None], [False, [[], 0]], [0, None]),
        [False, [[["p", "e", [], [["r"], [["c", "r", 7]]], [], [], 0, None, False, False]], 0]],
        [False, [[["p", "e", [], [[], []], [], [], 0, None, False, False]], 5]],
        [False, [[["p", 1, [], [[], []], [], [], 0, None, False, False]], 0]],
    ]
    bad: list[object] = [{**document, "value": value} for value in values]
    bad += [{**document, "reads": value} for value in (None, 7, [[]], [["k"]], [["?", "x", "y"]])]
    bad += [{**document, "reads": [["c", "/", "x"]]}, {**document, "reads": [["c", 1, 2]]}]
    bad += [[], None, "x", {"value": document["value"]}]
    payloads = [json.dumps(one) for one in bad] + ["[" * 200_000, '{"a":' * 9999, "1" * 5000]
    signed = [f"{states.digest(one.encode())}\n{one}".encode() for one in payloads]
    whole = text.encode()
    cut = [whole[:at] for at in (0, 1, 31, 33, len(whole) // 2, len(whole) - 1)]
    flipped = whole.replace(b"SPL", b"SPX", 1)
    return [*cut, *signed, flipped, b"\xff" * 99, digest.encode()]


@pytest.mark.thorough
def test_a_broken_entry_is_no_entry(place: Place) -> None:
    """Also one that somebody made so."""
    (place.folder / "start.py").unlink()
    first = place.lint("serve.sh")
    entry = next(path for path in place.entries if "serve.sh" in path.read_text())
    good = entry.read_text()
    for bad in hostile(good):
        entry.write_bytes(bad)
        said = place.lint("serve.sh")
        assert said == first, bad[:200]
    assert entry.read_text().partition("\n")[2]
    entry.unlink()
    os.mkfifo(entry)
    assert place.lint("serve.sh") == first
    entry.unlink()
    entry.mkdir()
    assert place.lint("serve.sh") == first
    entry.rmdir()
    entry.symlink_to(place.write("elsewhere", good))
    assert place.lint("serve.sh") == first


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["a file", "a link to nothing", "read-only", "in a file"])
def test_a_folder_that_cannot_be_written(place: Place, kind: str) -> None:
    place.home.mkdir()
    folder = place.home / "lint"
    if kind == "a file":
        folder.write_text("")
    elif kind == "a link to nothing":
        folder.symlink_to("/proc/nowhere")
    elif kind == "read-only":
        folder.symlink_to("/proc/self")  # read-only for root, too
    else:
        place.home.rmdir()
        place.home.write_text("")
    assert place.lint("serve.sh", "quiet.sh") == place.fresh("serve.sh", "quiet.sh")


@pytest.mark.thorough
def test_a_full_disk(place: Place) -> None:
    def full() -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        files.write_entry = refuse  # type: ignore[assignment]

    assert place.lint(*ALL, before=full) == place.fresh(*ALL)
    assert not place.entries


@pytest.mark.thorough
def test_killed_while_it_writes(place: Place) -> None:
    """An entry is there whole or not at all, whenever it ends."""
    fresh = place.fresh(*ALL)

    def killed(at: int) -> Callable[[], None]:
        def before() -> None:
            left, replace = [at], os.replace

            def kill(source: str, target: str) -> None:
                left[0] -= 1
                if left[0] == 0:
                    os.truncate(source, 100)
                    os.kill(os.getpid(), signal.SIGKILL)
                replace(source, target)

            os.replace = kill  # type: ignore[assignment]

        return before

    for at in (1, 4, 9):
        shutil.rmtree(place.home, ignore_errors=True)
        assert place.lint(*ALL, before=killed(at)).code == -signal.SIGKILL
        assert place.lint(*ALL) == fresh


@pytest.mark.thorough
def test_two_at_once(place: Place) -> None:
    fresh = place.fresh(*ALL)
    children = []
    for number in range(3):
        other = Place(place.folder, place.home, place.into.with_name(f"said{number}"))
        child = os.fork()
        if child == 0:
            same = all(other.lint(*ALL) == fresh for _ in range(2))
            os._exit(0 if same else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert place.lint(*ALL) == fresh


@pytest.mark.thorough
def test_the_oldest_entries_go(tmp_path: Path) -> None:
    folder = tmp_path / "lint"
    kept = cache_module.Cache(str(folder), "c", cache_module.Now(lambda: None))
    names = [kept.name(str(number).encode()) for number in range(40_000)]
    mine = sorted(names, key=lambda name: name[:2])[:150]
    for name in mine:
        kept.put(name, ["x"], Reads())
    abandoned = folder / mine[0][:2] / ".left.1"
    abandoned.write_text("")
    os.utime(abandoned, (1, 1))
    before = len(list(folder.glob("00/*")))
    trim_entries(
        str(folder / mine[0][:2]),
        cache_module._MOST_IN_FOLDER,
        cache_module._MOST_BYTES_IN_FOLDER,
    )
    left = [name for name in mine if kept.get(name) == ["x"]]
    assert before <= cache_module._MOST_IN_FOLDER + 60
    assert len([n for n in left if n[:2] == mine[0][:2]]) <= cache_module._MOST_IN_FOLDER
    assert not abandoned.exists()


def test_large_entries_are_bounded_and_very_large_ones_not_kept(tmp_path: Path) -> None:
    kept = cache_module.Cache(str(tmp_path), "c", cache_module.Now(lambda: None))
    kept.put("00" + "1" * 30, "x" * (1 << 19), Reads())
    assert not list(tmp_path.glob("*/*"))
    for number in range(20):
        kept.put(f"00{number:029d}0", "x" * 60_000, Reads())
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*"))
    assert 0 < size <= cache_module._MOST_BYTES_IN_FOLDER


def test_an_installation_that_changes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "one.py").write_text("1")
    monkeypatch.setattr("speclaunch.core.resources.shipped", lambda: (package,))
    seen = {cache_module.installation()}
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "one.pyc").write_text("1")
    assert cache_module.installation() in seen
    (package / "inner" / "one.py").write_text("2\n")
    seen.add(cache_module.installation())
    (package / "inner" / "two.py").write_text("")
    seen.add(cache_module.installation())
    (package / "inner" / "two.py").unlink()
    (package / "inner").rename(package / "outer")
    seen.add(cache_module.installation())
    assert len(seen) == 4


def test_the_stamp_of_the_installation_is_little_work() -> None:
    assert calls(cache_module.installation) < 20_000  # 10,800


def test_results_of_the_hub_and_of_standard_input_are_not_kept(place: Place) -> None:
    assert isinstance(place.lint("-"), Said)
    assert not [path for path in place.entries if "stdin" in path.read_text()]


def test_the_installed_engine_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is kept: for a thousand files no thousand interpreters are started."""
    monkeypatch.delenv(cache_module.SWITCH, raising=False)
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    asked: list[object] = []

    def found(kept: object) -> str:
        asked.append(kept)
        return "0.5.18"

    for wanted in (False, True):
        asked.clear()
        _, installed = cache_module.opened([], found, enabled=wanted)
        assert [installed(), installed()] == ["0.5.18", "0.5.18"]
        assert len(asked) == 1
