"""What holds for the code as a whole: the floors, the sizes, a light base install."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.loops import over

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "speclaunch"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "shim" not in path.parts)

FLOORS = {
    "__init__": 0,
    "children": 0,
    "errors": 0,
    "heartbeat": 0,
    "home": 0,
    "own_process": 0,
    "http_reader": 0,
    "patterns": 0,
    "printable": 0,
    "reads": 0,
    "redaction": 0,
    "resources": 0,
    "engine": 1,
    "cpu": 1,
    "entry_files": 1,
    "surroundings": 1,
    "facts": 2,
    "judge": 3,
    "recipe": 3,
    "importer": 4,
    "plan": 5,
    "asking": 6,
    "rules": 6,
    "fix": 7,
    "lint": 7,
    "fixing": 8,
    "launch": 8,
    "deploy": 9,
    "doctor": 9,
    "bench": 9,
    "proving": 9,
    "tuning": 10,
    "planning": 9,
    "sweep": 9,
    "report": 11,
    "lsp": 12,
    "cli": 13,
    "__main__": 14,
}
EVERYWHERE = ("patterns", "printable")
"""Modules of floor 0 that the rest of it may import. Each imports only those before it."""
HEAVY = {"torch", "transformers", "sglang", "numpy", "vllm", "triton", "nvidia"}


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.thorough
@over(MODULES)
def test_imports_go_down_only(path: Path) -> None:
    """To a package on a lower floor, or within the package; no two packages know each other."""
    own = part(path)
    for name in imported(path):
        if not name.startswith("speclaunch."):
            continue
        other = name.split(".")[1]
        before = EVERYWHERE[: EVERYWHERE.index(own)] if own in EVERYWHERE else EVERYWHERE
        if other in before:
            continue
        if other in FLOORS and other != own:  # else it is a name of speclaunch itself
            assert FLOORS[other] < FLOORS[own], f"{path.name} imports {name}"


def test_every_package_has_its_floor() -> None:
    assert {part(path) for path in MODULES} == FLOORS.keys()


def test_the_documentation_has_these_floors() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", page, re.M)
    told = {name.rstrip("/"): int(n) for n, some in rows for name in re.findall(r"`(\w+/?)`", some)}
    ours = {name: floor for name, floor in FLOORS.items() if not name.startswith("__")}
    assert told == ours


def test_hydra_is_imported_where_it_composes_and_sweeps_alone() -> None:
    assert [
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if any(name.split(".")[0] == "hydra" for name in imported(path))
    ] == ["recipe/hydra_compose.py", "recipe/hydra_sweeps.py", "sweep/hydra_app.py"]


def test_nothing_imports_the_engines_world() -> None:
    for path in MODULES:
        if (
            path.name == "make_models.py"
            or path.parent.name == "tiny_models"
            or path.is_relative_to(PACKAGE / "judge" / "worker")
        ):  # a script that runs in the engine's environment
            continue
        assert not {name.split(".")[0] for name in imported(path)} & HEAVY, path


def test_a_topic_knows_settings_and_other_topics_only() -> None:
    allowed = (
        *("speclaunch.plan.settings", "speclaunch.plan.topics", "speclaunch.facts"),
        *("speclaunch.patterns", "speclaunch.reads.safe_json"),
    )
    topics = sorted((PACKAGE / "plan" / "topics").glob("*.py"))
    assert topics
    for path in topics:
        for name in imported(path):
            assert not name.startswith("speclaunch.") or name.startswith(allowed), (path, name)


COMPARES_VERSIONS = {
    "engine/versions.py",
    "plan/plan.py",  # Plan.version, for messages and the ranges of rules
    "recipe/values.py",  # whether a text is a version at all
    "doctor/checks/engine.py",  # of other packages
    "launch/diagnosis/diagnose.py",  # an interval of versions that is narrowed line by line
    "launch/diagnosis/launch_log.py",
}


def test_versions_of_the_engine_are_told_apart_in_one_way() -> None:
    """`in_versions` of a plan, `within` of a version: not by objects, not by their places."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if "packaging.version.Version" in imported(path)
        or re.search(r"versions\.index\(", path.read_text())
    }
    assert found == COMPARES_VERSIONS


@pytest.mark.thorough
def test_the_plan_knows_no_rule() -> None:
    modules = sorted((PACKAGE / "plan").rglob("*.py"))
    assert modules
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            said = node.value if isinstance(node, ast.Constant) else None
            assert not (isinstance(said, str) and re.fullmatch(r"SPL\d{3}", said)), path


TABLES = {"rules/table.py"}
"""A row for each rule."""
WRITTEN = [path for path in MODULES if path.relative_to(PACKAGE).as_posix() not in TABLES]


@over(WRITTEN)
def test_no_module_has_over_600_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600


def requirements(name: str, seen: set[str]) -> None:
    """Everything that installing `name` without extras brings."""
    for requirement in importlib.metadata.requires(name) or []:
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        if match is None or "extra ==" in requirement:
            continue
        dependency = match[0].lower().replace("_", "-")
        if dependency not in seen:
            seen.add(dependency)
            try:
                requirements(dependency, seen)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform or Python


def test_the_base_install_is_light() -> None:
    brought: set[str] = set()
    requirements("speclaunch", brought)
    assert {"hydra-core", "pydantic", "typer", "rich"} <= brought
    assert not brought & HEAVY
    assert len(brought) < 50  # a dozen of them for huggingface_hub, and none with torch or numpy


@pytest.mark.thorough
def test_the_wheel_holds_recipes_groups_and_pages(tmp_path: Path) -> None:
    pytest.importorskip("pip")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, kind in (("recipes", "*.yaml"), ("conf", "*.yaml"), ("docs/rules", "*.md")):
        for path in (ROOT / folder).rglob(kind):
            assert f"speclaunch/{path.relative_to(ROOT)}" in names
    assert "speclaunch/cpu/shim/sitecustomize.py" in names
    assert "speclaunch/py.typed" in names
    assert "speclaunch/report/plan/templates/style.css" in names
    assert wheel.stat().st_size < 3 << 20
    # found from anywhere: the wheel alone, no checkout beside it
    code = (
        "from speclaunch.recipe.find_recipe import recipe_names; print(len(recipe_names())); "
        "from speclaunch.rules.pages import page; print(page('SPL211').title)"
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, 'site'); {code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    recipes, title = done.stdout.splitlines()
    assert int(recipes) == len(list((ROOT / "recipes").glob("*.yaml")))
    assert title == "SPL211 ngram-dp-attention"


STARTS = {
    *("subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.check_call"),
    *("subprocess.check_output", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("os.system", "os.popen", "os.posix_spawn", "os.posix_spawnp", "os.fork", "os.forkpty"),
    *("os.startfile", "pty.fork", "pty.spawn", "concurrent.futures.ProcessPoolExecutor"),
    *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
}
STARTS_PROCESSES = {
    "children.py": {"subprocess.Popen"},
    "judge/worker/serve.py": {"os.fork"},  # in the engine's interpreter, without our modules
    "launch/guard.py": {"subprocess.Popen"},  # the engine; a script of the standard library
    "launch/apart.py": {"os.fork"},  # these three: the same program goes on
    "launch/detach.py": {"os.fork"},
    "lint/workers.py": {"os.fork"},
}


def annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            yield node.returns


def starts(tree: ast.Module) -> set[str]:
    """The functions that start a process, by any name that the module imports them by."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    dotted = {*names.values()}
    types = {id(part) for node in annotations(tree) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in types:
            first, _, rest = ast.unparse(node).partition(".")
            dotted.add(f"{names.get(first, '')}.{rest}")
    found = {name for name in dotted if name in STARTS or name.startswith(("os.exec", "os.spawn"))}
    return found | {name for name in dotted if name.partition(".")[0] == "multiprocessing"}


@pytest.mark.thorough
def test_one_module_starts_processes() -> None:
    """So that none runs a file of the current directory: see `children`."""
    found = {
        path.relative_to(PACKAGE).as_posix(): starts(ast.parse(path.read_text()))
        for path in MODULES
    }
    assert {name: some for name, some in found.items() if some} == STARTS_PROCESSES


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess as s\ns.Popen([])",
        "from subprocess import run as r\nr([])",
        "import os\ndef f(): os.execv('a', [])",
        "from os import spawnlp",
        "import os.path\nos.system('a')",
        "import asyncio\nf = asyncio.create_subprocess_exec",
        "import concurrent.futures\nconcurrent.futures.ProcessPoolExecutor()",
        "from concurrent import futures\nfutures.ProcessPoolExecutor()",
        "from multiprocessing import Process",
        "import multiprocessing.pool",
    ],
)
def test_a_start_of_a_process_is_seen_by_any_name(text: str) -> None:
    assert starts(ast.parse(text))


DIRECT_READS = {
    "bench/aiperf.py": "the load generator's own output",
    "bench/engines.py": "the log of an engine that bench started",
    "bench/generator.py": "prompts that bench wrote",
    "doctor/machine.py": "the kernel's files",
    "engine/catalogue.py": "ships with speclaunch",
    "engine/extraction/source.py": "the source of an engine that the user named",
    "engine/forks.py": "a catalogue of this user",
    "facts/hardware_probe.py": "the kernel's files",
    "facts/runtime.py": "ships with speclaunch; the interpreter and its packages",
    "importer/recipe_text.py": "ships with speclaunch",
    "judge/engine_judge.py": "ships with speclaunch",
    "judge/add.py": "packages that the user installs",
    "judge/environments.py": "a judge of this user",
    "launch/agreement/membership.py": "the kernel's files",
    "launch/free_port.py": "the kernel's files",
    "launch/guard.py": "the kernel's files",
    "lint/baseline.py": "ships with speclaunch",
    "lsp/server.py": "the null device",
    "plan/architectures.py": "ships with speclaunch",
    "plan/refusals.py": "ships with speclaunch",
    "rules/pages.py": "ships with speclaunch",
    "sweep/course.py": "the log of a job that the sweep started",
    "sweep/run_job.py": "the log of a job that the sweep started",
}
"""Modules that read files by the calls of Python: files that no stranger names or fills."""


def _reads_directly(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open" and not _writes(call)
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if function.attr == "open":
        return owner not in ("os", "opener", "webbrowser") and not _writes(call)
    return function.attr in ("read_text", "read_bytes") and owner != "reads"


def _writes(call: ast.Call) -> bool:
    modes = [one.value for one in call.args if isinstance(one, ast.Constant)]
    return any(isinstance(one, str) and set(one) & set("wax") for one in modes)


@pytest.mark.thorough
def test_files_of_strangers_are_read_by_the_bounded_reader() -> None:
    """`speclaunch.reads` refuses what is no regular file, or too large."""
    skipped = {"cpu", "worker", "reads"}
    found = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if not skipped & set(path.relative_to(PACKAGE).parts)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _reads_directly(node)
    }
    assert found == DIRECT_READS.keys(), "use speclaunch.reads, or give a reason"
