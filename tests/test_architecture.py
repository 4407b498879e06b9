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
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.loops import over, rows

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "speclaunch"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "shim" not in path.parts)

LIBRARIES = ("core", "engine", "deployments", "checks", "serving", "measure", "app")
"""From the lowest: a library imports those before it, through their front doors."""
MOST_LINES, MOST_MODULES = 132_100, 418
"""Only a commit that says why raises them."""
HEAVY = {"torch", "transformers", "sglang", "numpy", "vllm", "triton", "nvidia"}


def library(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in MODULES}
OURS = re.compile(r"speclaunch(\.|$)")
DOORS = {name: import_module(f"speclaunch.{name}") for name in LIBRARIES}


@cache
def own_imports(path: Path) -> tuple[tuple[str, str], ...]:
    """Return module and name of each import of ours; none of a front door, which only lists."""
    found = []
    if path.parent.parent == PACKAGE and path.name == "__init__.py":
        return ()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if OURS.match(alias.name)]
        elif isinstance(node, ast.ImportFrom) and OURS.match(node.module or ""):
            found += [(node.module or "", alias.name) for alias in node.names]
    return tuple(found)


def test_the_libraries_are_these_seven() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if any(path.glob("*.py"))}
    assert folders == set(LIBRARIES)
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    for name in LIBRARIES:
        assert (PACKAGE / name / "README.md").is_file()
        assert f"speclaunch/{name}/README.md" in page


@pytest.mark.thorough
@pytest.mark.core
def test_imports_go_down_through_front_doors() -> None:
    wrong = []
    for path in MODULES:
        if path.parent == PACKAGE:  # __main__
            continue
        own = library(path)
        for module, name in own_imports(path):
            other = module.split(".")[1] if "." in module else None
            if other == own:
                through = module == f"speclaunch.{own}" and f"{module}.{name}" not in NAMES
                wrong += [f"{path.name}: its own front door, {name}"] if through else []
            elif other is None:
                wrong += [f"{path.name}: {name}"] if name != "__version__" else []
            elif LIBRARIES.index(other) > LIBRARIES.index(own):
                wrong.append(f"{path.name} imports {module}, which is above {own}")
            elif module != f"speclaunch.{other}" or name not in DOORS[other].__all__:
                wrong.append(f"{path.name} imports {module}.{name} past a front door")
    assert not wrong


@pytest.mark.thorough
@pytest.mark.core
def test_front_doors_have_what_others_use() -> None:
    used = {(module, name) for path in MODULES for module, name in own_imports(path)}
    for name, door in DOORS.items():
        listed = [(f"speclaunch.{name}", one) for one in door.__all__]
        assert len(listed) == len(set(listed))
        assert not set(listed) - used
        for _, one in listed:
            assert getattr(door, one) is not None


def test_stubs_of_front_doors_are_up_to_date() -> None:
    tool = ROOT / "tools" / "front_doors.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the own library that a module imports, at any time."""
    found = set()
    for module, name in own_imports(path):
        full = f"{module}.{name}"
        found.add(full if full in NAMES else module)
    return {name for name in found if name.startswith(f"speclaunch.{library(path)}.")}


CYCLES = {("sources.commands", "sources.yaml_files")}
"""A script may hold a manifest, and a manifest a script."""


@pytest.mark.thorough
@pytest.mark.core
def test_no_import_cycles() -> None:
    graph = {name: imported_modules(path) for name, path in NAMES.items() if path.parent != PACKAGE}
    for user, used in CYCLES:
        graph[f"speclaunch.deployments.{user}"].remove(f"speclaunch.deployments.{used}")
    while free := [name for name, some in graph.items() if not some & graph.keys() - {name}]:
        for name in free:
            del graph[name]
    assert not sorted(graph)


def test_the_package_stays_small() -> None:
    assert len(MODULES) <= MOST_MODULES
    assert sum(len(path.read_text().splitlines()) for path in MODULES) <= MOST_LINES


@pytest.mark.thorough
@pytest.mark.core
def test_public_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        if "worker" in path.parts:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path.name)
    assert not {name: some for name, some in homes.items() if len(some) > 1}


@cache
def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


AROUND = {
    "tests/support": ("tests.support",),
    "tools": ("tools", "tests.support"),
    "campaigns": ("campaigns", "tools", "tests.support"),
}
"""Folders around the package, and what they import of them."""
TESTS_OF_TOOLS = {
    "checks/engine_check/test_places.py": {"campaigns.minimal_places"},
    "conformance/test_conformance.py": {"tools.engine_verdicts"},
    "checks/deployments/test_mutations.py": {
        "campaigns.deployment_mutating",
        "campaigns.deployment_mutations",
    },
    "e2e/test_translations.py": {"campaigns.translating"},
    "engine/releases/test_metrics.py": {"tools.metrics"},
    "engine/releases/test_release_tool.py": {"tools.release", "tools.releasing"},
    "engine/facts/test_published_acceptance.py": {"tools.published_acceptance"},
    "fuzz/test_kept.py": {"campaigns.fuzz", "campaigns.fuzzing"},
    "checks/engine_check/test_launches.py": {"campaigns.judge_against_launch"},
    "serving/launch/agreement/test_ranks.py": {"campaigns.agreement"},
    "serving/launch/diagnosis/test_corpus.py": {"tools.failure_texts"},
    "serving/launch/test_faults.py": {"campaigns.fault_injection"},
    "measure/contract/test_contract.py": {"campaigns.contract"},
    "measure/prove/test_campaign.py": {"campaigns.proof"},
    "measure/releases/test_planted.py": {"campaigns._engine_plants", "campaigns.releases"},
    "recall/test_drawing.py": {"campaigns.recalling"},
    "recall/test_sample.py": {"campaigns.recalling"},
    "test_sampling.py": {"tools.changed_tests", "tools.run_tests"},
    "tools/test_model_index.py": {"tools.model_index", "tools.model_indexing"},
    "tools/test_net.py": {"tools.net", "tools.netting"},
    "tools/test_published.py": {"campaigns.published"},
    "tools/test_refusals.py": {"tools.refusal_reading", "tools.refusals"},
    "tools/test_shell_oracle.py": {"campaigns.shell_oracle"},
    "translations/test_translations.py": {"campaigns.translating"},
    "measure/tune/test_campaign.py": {"campaigns.tuning"},
}
"""Tests that import tools and campaigns, and which: those that they test."""


def _imported_around(path: Path) -> set[str]:
    """Return the modules of tests, tools and campaigns that a file imports, by two names."""
    siblings = {tool.stem for tool in (ROOT / "tools").glob("[!_.]*") if tool.suffix != ".md"}
    names = {f"tools.{n}" if n.partition(".")[0] in siblings else n for n in imported(path)}
    return {
        ".".join(name.split(".")[:2])
        for name in names
        if name.startswith(("tests.", "tools.", "campaigns."))
    }


@pytest.mark.thorough
def test_tools_and_campaigns_import_what_is_below_them() -> None:
    for folder, allowed in AROUND.items():
        for path in (ROOT / folder).rglob("*.py"):
            for name in _imported_around(path):
                assert name.startswith(allowed), f"{path} imports {name}"


@pytest.mark.thorough
def test_tests_import_the_tools_that_they_test() -> None:
    tests = ROOT / "tests"
    found = {
        path.relative_to(tests).as_posix(): names
        for path in tests.rglob("*.py")
        if (names := {n for n in _imported_around(path) if not n.startswith("tests.")})
    }
    assert found == TESTS_OF_TOOLS, "move what they share to tests/support"


@pytest.mark.parametrize("folder", ["tools", "campaigns"])
def test_the_readme_has_each_of_them(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    named = {a or b for a, b in re.findall(r"`(\w+)\.py`|\]\((\w+)\.py\)", text)}
    assert {path.stem for path in (ROOT / folder).glob("[!_]*.py")} <= named


@pytest.mark.thorough
@pytest.mark.core
def test_hydra_is_imported_where_it_composes_and_sweeps_alone() -> None:
    assert [
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if any(name.split(".")[0] == "hydra" for name in imported(path))
    ] == [
        "deployments/recipe/hydra_compose.py",
        "measure/hydra_app.py",
    ]


@pytest.mark.thorough
@pytest.mark.core
def test_nothing_imports_the_engines_world() -> None:
    for path in MODULES:
        if path.name == "make_models.py" or path.is_relative_to(
            PACKAGE / "checks" / "engine_check" / "worker"
        ):  # a script that runs in the engine's environment
            continue
        assert not {name.split(".")[0] for name in imported(path)} & HEAVY, path


def test_a_topic_knows_settings_and_other_topics_only() -> None:
    allowed = (
        *("speclaunch.engine.plan.settings", "speclaunch.engine.plan.topics"),
        *("speclaunch.engine.facts", "speclaunch.core"),
    )
    topics = sorted((PACKAGE / "engine" / "plan" / "topics").glob("*.py"))
    assert topics
    for path in topics:
        for name in imported(path):
            assert not name.startswith("speclaunch.") or name.startswith(allowed), (path, name)


COMPARES_VERSIONS = {
    "engine/releases/versions.py",
    "engine/plan/plan.py",  # Plan.version, for messages and the ranges of rules
    "deployments/recipe/sections.py",  # whether a text is a version at all
    "serving/doctor/checks/engine.py",  # of other packages
    "serving/launch/diagnosis/diagnose.py",  # an interval of versions that is narrowed line by line
    "serving/launch/diagnosis/launch_log.py",
}


@pytest.mark.thorough
@pytest.mark.core
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
@pytest.mark.core
def test_the_plan_knows_no_rule() -> None:
    modules = sorted((PACKAGE / "engine" / "plan").rglob("*.py"))
    assert modules
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            said = node.value if isinstance(node, ast.Constant) else None
            assert not (isinstance(said, str) and re.fullmatch(r"SPL\d{3}", said)), path


TABLES = {"checks/rules/table.py"}
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
    assert "speclaunch/serving/cpu_engine/shim/sitecustomize.py" in names
    assert "speclaunch/py.typed" in names
    assert "speclaunch/app/output/templates/style.css" in names
    assert wheel.stat().st_size < 3 << 20
    # found from anywhere: the wheel alone, no checkout beside it
    code = (
        "from speclaunch.deployments.recipe.find_recipe import recipe_names; print(len(recipe_names())); "
        "from speclaunch.checks.rules.interface import page; print(page('SPL211').title)"
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
    "core/children.py": {"subprocess.Popen"},
    "checks/engine_check/worker/serve.py": {
        "os.fork"
    },  # in the engine's interpreter, without our modules
    "serving/launch/guard.py": {"subprocess.Popen"},  # the engine; a script of the standard library
    "serving/launch/planner.py": {"os.fork"},  # these three: the same program goes on
    "serving/launch/process.py": {"os.fork"},
    "checks/lint/workers.py": {"os.fork"},
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
@pytest.mark.core
def test_one_module_starts_processes() -> None:
    """So that none runs a file of the current directory: see `children`."""
    found = {
        path.relative_to(PACKAGE).as_posix(): starts(ast.parse(path.read_text()))
        for path in MODULES
    }
    assert {name: some for name, some in found.items() if some} == STARTS_PROCESSES


@rows(
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
    "measure/bench/engines.py": "the log of an engine that bench started",
    "measure/bench/load_generators.py": "prompts that bench wrote, and output of the generator",
    "serving/doctor/machine.py": "the kernel's files",
    "engine/releases/catalogue.py": "ships with speclaunch",
    "engine/releases/metrics.py": "ships with speclaunch",
    "engine/releases/extraction/source.py": "the source of an engine that the user named",
    "checks/engine_check/add_judge.py": "packages that the user installs",
    "checks/engine_check/engine_judge.py": "ships with speclaunch",
    "engine/releases/forks.py": "a catalogue of this user",
    "engine/facts/cpu_engine.py": "ships with speclaunch",
    "engine/facts/hardware_probe.py": "the kernel's files",
    "engine/facts/runtime.py": "ships with speclaunch; the interpreter and its packages",
    "deployments/sources/recipe_text.py": "ships with speclaunch",
    "serving/launch/agreement/membership.py": "the kernel's files",
    "serving/launch/runs.py": "the kernel's files",
    "serving/launch/guard.py": "the kernel's files",
    "checks/lint/baseline.py": "ships with speclaunch",
    "checks/editors/server.py": "the null device",
    "engine/plan/architectures.py": "ships with speclaunch",
    "engine/plan/refusals.py": "ships with speclaunch",
    "checks/advisory.py": "ships with speclaunch",
    "checks/rules/interface.py": "ships with speclaunch",
    "measure/sweep_run.py": "the log of a job that the sweep started",
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
@pytest.mark.core
def test_files_of_strangers_are_read_by_the_bounded_reader() -> None:
    """`speclaunch.core.reads` refuses what is no regular file, or too large."""
    skipped = {"cpu_engine", "worker", "reads"}
    found = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if not skipped & set(path.relative_to(PACKAGE).parts)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _reads_directly(node)
    }
    assert found == DIRECT_READS.keys(), "use speclaunch.core.reads, or give a reason"
