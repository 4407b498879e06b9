"""No verb that reads executes a module of the directory that it runs in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch.core import children

pytestmark = pytest.mark.thorough

OTHERS = (
    *("sitecustomize", "usercustomize", "sglang", "torch", "hydra", "hydra_plugins", "omegaconf"),
    *(
        "yaml",
        "pydantic",
        "msgspec",
        "typer",
        "rich",
        "psutil",
        "pip",
        "packaging",
        "huggingface_hub",
    ),
)
COMMAND = (
    "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM\n"
)
VERBS = {
    "lint": "lint .",
    "lint without the engine": "lint --no-cache --ask never serve.sh",
    "lint with the installed engine": "lint --no-cache --engine installed serve.sh",
    "doctor": "doctor",
    "doctor of a recipe": "doctor recipe.yaml",
    "engine ls": "engine ls",
    "plan": "plan recipe.yaml",
    "plan of a command": "plan serve.sh",
    "dry run": "launch --dry-run recipe.yaml",
    "render": "render --to shell recipe.yaml",
    "bench": "bench --dry-run recipe.yaml",
    "import": "import serve.sh",
    "migrate": "migrate serve.sh --to 0.5.23",
    "drafts": "drafts Qwen/Qwen3-8B --hardware h100:1",
    "init": "init Qwen/Qwen3-8B --hardware h100:1",
    "diagnose": "diagnose serve.sh",
    "ps": "ps",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another interpreter on PATH, so that one is started."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "python3"
    program.symlink_to(os.path.realpath(sys.executable))
    return program


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A repository with a hostile module of every name, a recipe and a script."""
    folder = tmp_path / "repository"
    folder.mkdir()
    marker = tmp_path / "executed"
    for name in {*sys.stdlib_module_names, *OTHERS} - {"__main__"}:
        (folder / f"{name}.py").write_text(
            f"import posix\nfile = posix.open({str(marker)!r}, posix.O_CREAT | posix.O_WRONLY"
            f" | posix.O_APPEND)\nposix.write(file, b'{name} ')\nposix.close(file)\n"
        )
    for name in ("sglang", "hydra_plugins"):
        (folder / name).mkdir()
        (folder / f"{name}.py").rename(folder / name / "__init__.py")
    (folder / "serve.sh").write_text(COMMAND)
    (folder / "recipe.yaml").write_text(
        "args: {model_path: Qwen/Qwen3-8B, speculative_algorithm: NGRAM}\n"
    )
    return folder


def environment(directory: Path, python: Path, **more: str) -> dict[str, str]:
    env = {n: v for n, v in os.environ.items() if n not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    env["PATH"] = f"{python.parent}{os.pathsep}{env['PATH']}"
    return {**env, "SPECLAUNCH_HOME": str(directory.parent / "home"), **more}


def executed(directory: Path) -> str:
    marker = directory.parent / "executed"
    return marker.read_text() if marker.exists() else ""


@pytest.mark.parametrize("verb", VERBS)
def test_no_module_of_the_directory_runs(verb: str, directory: Path, python: Path) -> None:
    done = subprocess.run(
        [*children.own_command(), *VERBS[verb].split()],
        cwd=directory,
        env=environment(directory, python),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert executed(directory) == ""


@pytest.mark.parametrize("path", ["", ":/nowhere", "."])
def test_a_relative_entry_of_pythonpath_reaches_no_child(
    path: str, directory: Path, python: Path
) -> None:
    """Python itself has searched it when speclaunch begins; `-I` stands for a clean start."""
    script = (
        "import sys; sys.argv[0] = 'speclaunch'; from speclaunch.app.verbs.app import main; main()"
    )
    done = subprocess.run(
        [*children.isolated(sys.executable, "-c", script), "lint", "--no-cache", "serve.sh"],
        cwd=directory,
        env=environment(directory, python, PYTHONPATH=path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert executed(directory) == ""


def test_the_module_of_the_package_searches_the_directory_no_longer(
    directory: Path, python: Path
) -> None:
    """`python -m` itself imports a few modules before it runs ours: those cannot be defended."""
    earlier = subprocess.run(
        [sys.executable, "-I", "-c", "import runpy, pkgutil, importlib.util, sys;"
         "print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    for name in earlier.stdout.split():
        (directory / f"{name}.py").unlink(missing_ok=True)
    assert (directory / "json.py").exists()
    for words in ("lint --no-cache serve.sh", "plan recipe.yaml", "doctor"):
        done = subprocess.run(
            [sys.executable, "-m", "speclaunch", *words.split()],
            cwd=directory,
            env=environment(directory, python),
            capture_output=True,
            text=True,
        )
        assert done.returncode in (0, 1), done.stderr
        assert executed(directory) == ""


def test_the_language_server_executes_none(directory: Path, python: Path) -> None:
    document = {
        "uri": (directory / "serve.sh").as_uri(),
        "languageId": "shellscript",
        "version": 1,
        "text": COMMAND,
    }
    messages = [
        {"id": 1, "method": "initialize", "params": {"capabilities": {}, "processId": None}},
        {"method": "initialized", "params": {}},
        {"method": "textDocument/didOpen", "params": {"textDocument": document}},
    ]
    with subprocess.Popen(
        children.own_command("lsp"),
        cwd=directory,
        env=environment(directory, python),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        for message in messages:
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        server.stdin.flush()
        said = b""
        while b"publishDiagnostics" not in said:
            chunk = server.stdout.read1()  # type: ignore[attr-defined]
            assert chunk, said
            said += chunk
        server.kill()
    assert executed(directory) == ""


def test_a_relative_folder_on_path_is_not_searched(directory: Path, python: Path) -> None:
    marker = directory.parent / "executed"
    for folder in (directory, directory / "bin", directory / ".venv" / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "python3"
        program.write_text(f"#!/bin/sh\necho {folder} >> {marker}\n")
        program.chmod(0o755)
        (folder / "python").symlink_to("python3")
    env = environment(directory, python, VIRTUAL_ENV=".venv")
    env["PATH"] = os.pathsep.join(["", ".", "bin", env["PATH"]])
    done = subprocess.run(
        [*children.own_command(), "lint", "--no-cache", "serve.sh"],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert executed(directory) == ""
