"""How much work a command is, counted instead of timed: bytecode, files, parses of YAML.

When the work gets less, lower the limit; when a test fails, something is done that was not before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.corpora.recipes import recipe
from tests.support.corpora.scripts import script

ROOT = Path(__file__).resolve().parent.parent
RECIPES = 100

FRAMEWORKS = ("hydra", "omegaconf", "antlr4", "rich", "httpx", "huggingface_hub", "asyncio")
"""What is slow to import, and is not needed to say something short or to check a file."""
LIBRARIES = (*FRAMEWORKS, "pydantic", "jinja2", "psutil")
NOT_NEEDED = {
    "--version": (*LIBRARIES, "typer", "packaging", "yaml", "logging", "json", "subprocess"),
    "--help": (*LIBRARIES, "yaml", "logging", "json"),
    "explain": (*LIBRARIES, "typer", "packaging", "yaml", "logging", "json", "subprocess"),
    "script": (*LIBRARIES, "typer", "yaml", "logging"),
    "recipe": (*LIBRARIES, "typer"),
}
"""Modules that a command does not import."""
OTHERS = {"--version": 93, "--help": 162, "script": 136, "recipe": 164, "explain": 93}
"""The most modules that are not of speclaunch: of the standard library, of `site`, of libraries."""
PYTHON = (3, 11)
"""The version that the limits below are of: bytecode differs from version to version."""
LIMITS = {
    "--version": (30_000, 36),
    "--help": (52_900, 94),
    "explain": (103_400, 158),
    "script": (1_180_000, 2_150),
    "recipe": (1_418_000, 2_630),
}
"""The most bytes of bytecode of speclaunch that a command loads, and functions that it creates.

A module counts as a whole, however small the part of it that is needed: merged modules that are
loaded for less cost more. The tables of the front doors are 2 to 10 KB of it.
"""

READS_OF_A_RECIPE = 8
READS_OF_A_GROUP = 8
"""The most, in a lint of 100 recipes; 1 would do."""
PARSES_OF_A_RECIPE = 2
"""1 would do."""
PARSES_OF_A_GROUP = 1
PROCESSES = 1
"""The most that a lint of 100 recipes starts: the interpreter on PATH is asked for its engine."""
FILES_BESIDE = 130
"""The most other files that are read for 100 recipes: the index of checkpoints, catalogues."""

_COUNTING = """
import atexit, gc, os, sys, types
opened, parsed, started = [], [], []
def size(code):
    count = len(code.co_code)
    for one in code.co_consts:
        if hasattr(one, "co_consts"):
            count += size(one)
        elif isinstance(one, (str, bytes)):
            count += len(one)
    return count
def of_ours():
    own = [name for name in list(sys.modules) if name.partition(".")[0] == "speclaunch"]
    codes = [sys.modules[name].__spec__.loader.get_code(name) for name in own]
    functions = [one for one in gc.get_objects() if isinstance(one, types.FunctionType)]
    made = [one for one in functions if str(one.__module__).partition(".")[0] == "speclaunch"]
    return {"bytes": sum(map(size, codes)), "functions": len(made)}
def watch(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)) and not args[2] & os.O_ACCMODE:
        opened.append(os.fsdecode(args[0]))
    elif event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        started.append(event)
def count_parses():
    import yaml
    for loader in {yaml.SafeLoader, yaml.FullLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)}:
        def counted(self, stream, _before=loader.__init__):
            parsed.append(stream if isinstance(stream, str) else "")
            _before(self, stream)
        loader.__init__ = counted
def tell():
    counted = {"modules": list(sys.modules), "opened": list(opened), "started": started}
    counted |= of_ours()
    import json
    counted["parsed"] = [text[:2000] for text in parsed]
    with open(os.environ["COUNTED"], "w") as file:
        json.dump(counted, file)
def leave(status, before=os._exit):
    tell()
    before(status)
if os.environ.get("PARSES"):
    count_parses()
atexit.register(tell)
os._exit = leave
sys.argv[0] = "speclaunch"
sys.addaudithook(watch)
from speclaunch.app.verbs.app import main
main()
"""


@dataclass(frozen=True)
class Work:
    """What one command did."""

    modules: tuple[str, ...]
    opened: tuple[str, ...]
    """Files that were read, as often as they were; code excepted."""
    parsed: tuple[str, ...]
    """The texts that PyYAML parsed, or their beginnings."""
    started: tuple[str, ...]
    """Processes."""
    bytes: int
    """Of bytecode and texts, in all modules of speclaunch that were loaded."""
    functions: int
    """Functions of speclaunch that exist at the end, generated ones included."""

    @property
    def others(self) -> list[str]:
        return [one for one in self.modules if one.partition(".")[0] != "speclaunch"]

    def loaded(self, names: Sequence[str]) -> list[str]:
        return [one for one in names if one in self.modules]


def work(tmp_path: Path, *words: str, parses: bool = False, ends: tuple[int, ...] = (0, 1)) -> Work:
    """Run a command as a user with an empty home does, and count."""
    counted = tmp_path / "counted.json"
    counted.unlink(missing_ok=True)
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.defpath, "HOME": str(home), "COUNTED": str(counted)}
    environment |= {"PYTHONPATH": str(ROOT), "PARSES": "1" if parses else ""}
    done = subprocess.run(
        [sys.executable, "-c", _COUNTING, *words],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode in ends, done.stderr
    said = json.loads(counted.read_text())
    data = (one for one in said["opened"] if not one.endswith((".py", ".pyc", ".so", ".pth")))
    return Work(
        tuple(said["modules"]),
        tuple(data),
        tuple(said["parsed"]),
        tuple(said["started"]),
        said["bytes"],
        said["functions"],
    )


def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    for number in range(RECIPES):
        (folder / f"team_{number:03}.yaml").write_text(recipe(number))
    return folder


@pytest.mark.thorough
@pytest.mark.core
@pytest.mark.parametrize("name", sorted(NOT_NEEDED))
def test_imports(name: str, tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text(script(3))
    (tmp_path / "mine.yaml").write_text(recipe(3))
    words = {
        "explain": ["explain", "SPL301"],
        "script": ["lint", "serve.sh"],
        "recipe": ["lint", "mine.yaml"],
    }.get(name, [name])
    done = work(tmp_path, *words)
    assert done.loaded(NOT_NEEDED[name]) == []
    assert len(done.others) <= OTHERS[name]
    if sys.version_info[:2] == PYTHON:
        most_bytes, most_functions = LIMITS[name]
        assert done.bytes <= most_bytes
        assert done.functions <= most_functions


@pytest.mark.thorough
def test_files_of_many_recipes(tmp_path: Path) -> None:
    """Each recipe and each group is read once, and nothing is composed by Hydra."""
    folder = recipes(tmp_path)
    done = work(tmp_path, "lint", "recipes")
    reads = Counter(path for one in done.opened if (path := tmp_path / one).is_file())
    of_recipes = {one: count for one, count in reads.items() if one.parent == folder}
    of_groups = {one: count for one, count in reads.items() if (ROOT / "conf") in one.parents}
    assert len(of_recipes) == RECIPES and of_groups
    assert max(of_recipes.values()) <= READS_OF_A_RECIPE
    assert max(of_groups.values()) <= READS_OF_A_GROUP
    known = of_recipes.keys() | of_groups.keys()
    beside = [one for one in reads if one not in known and tmp_path not in one.parents]
    assert len(beside) <= FILES_BESIDE
    assert done.loaded(NOT_NEEDED["recipe"]) == []
    assert len(done.started) <= PROCESSES


@pytest.mark.thorough
def test_parses_of_many_recipes(tmp_path: Path) -> None:
    folder = recipes(tmp_path)
    done = work(tmp_path, "lint", "recipes", parses=True)
    parses = Counter(done.parsed)
    most = {
        folder: (RECIPES, PARSES_OF_A_RECIPE),
        ROOT / "conf": (0, PARSES_OF_A_GROUP),
    }
    for place, (least, limit) in most.items():
        counts = [parses.pop(one.read_text()[:2000], 0) for one in place.rglob("*.yaml")]
        assert sum(counts) >= least and max(counts) <= limit
    assert not parses  # nothing else is YAML


@pytest.mark.thorough
def test_a_second_time_nothing_is_parsed(tmp_path: Path) -> None:
    """What was found is taken from the cache: no rule is asked, no file is composed."""
    recipes(tmp_path)
    work(tmp_path, "lint", "recipes")
    again = work(tmp_path, "lint", "recipes", parses=True)
    assert again.parsed == ()
    assert (
        again.loaded(("speclaunch.engine.plan.resolve", "speclaunch.deployments.recipe.compose"))
        == []
    )
