"""`speclaunch doctor` as it is run, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core.files import speclaunch_home
from speclaunch.engine.facts.cpu_engine import CpuEngine, is_installed
from speclaunch.serving.launch import guard
from tests.support import program

_HOME = speclaunch_home()
PYNVML = """
import os
class _Memory: pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetCudaComputeCapability(handle): return (9, 0)
def nvmlDeviceGetName(handle): return "NVIDIA H100 80GB HBM3"
def nvmlSystemGetDriverVersion(): return "570.86.15"
def nvmlDeviceGetMemoryInfo(handle):
    memory = _Memory()
    memory.total, memory.free = 80 << 30, (79 - 38 * handle) << 30
    return memory
def nvmlDeviceGetComputeRunningProcesses(handle):
    if not handle: return []
    process = _Memory()
    process.pid, process.usedGpuMemory = int(os.environ["HOLDER"]), 38 << 30
    return [process]
"""
"""Stands in for NVIDIA's library: two GPUs, of which another process has half of the second."""


def doctor(*words: str, drop: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """Without what an engine of this machine's own would add: on PATH is the system alone."""
    dropped = {"VIRTUAL_ENV", "CONDA_PREFIX", *drop}
    dropped |= {n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("SGLANG_")}
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    return program.run("doctor", *words, env={**inherited, "PATH": "/usr/bin:/bin", **env})


def document(*words: str, **env: Any) -> dict[str, Any]:
    done = doctor(*words, "--output-format", "json", **env)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    found["exit"] = done.returncode
    return found


def checks(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [check for check in found["checks"] if check["check"] == name]


@pytest.fixture
def fresh(tmp_path: Path) -> dict[str, str]:
    """A user who has nothing yet."""
    return {"HOME": str(tmp_path / "home"), "SPECLAUNCH_HOME": str(tmp_path / "home" / "s")}


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """An environment with an SGLang whose kernels are too old."""
    import venv

    root = tmp_path / "engine"
    venv.create(root, with_pip=False)
    (packages,) = root.glob("lib/python3*/site-packages")
    for name, version in (("sglang", "0.5.18"), ("sglang_kernel", "0.4.1"), ("torch", "2.13.0")):
        folder = packages / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    source = packages / "sglang/srt/entrypoints"
    source.mkdir(parents=True)
    (packages / "sglang/__init__.py").write_text("raise SystemExit('imported')\n")
    (source / "engine.py").write_text('assert_pkg_version(\n "sglang-kernel",\n "0.4.6",\n')
    (packages / "torch").mkdir()
    (packages / "torch/__init__.py").touch()
    (packages / "torch/version.py").write_text("__version__ = '2.13.0'\ncuda = '13.0'\n")
    return root


@pytest.mark.thorough
def test_a_new_machine_is_not_red(fresh: dict[str, str]) -> None:
    found = document(**fresh)
    assert found["exit"] == 0
    assert found["state"] in ("ok", "note", "warning")  # the disk of this machine may be full
    assert {check["check"] for check in found["checks"]} >= {
        "speclaunch",
        "engine",
        "cpu-engine",
        "gpu",
        "memory",
        "disk",
        "engines",
        "port",
        "variables",
        "token",
    }
    assert "findings" not in found
    (cpu,) = checks(found, "cpu-engine")
    assert (cpu["state"], cpu["fix"]) == ("note", "speclaunch engine install cpu")


def test_it_leaves_nothing_behind(fresh: dict[str, str]) -> None:
    assert doctor(**fresh).returncode == 0
    assert not Path(fresh["HOME"]).exists()


@pytest.mark.thorough
def test_text_and_exit_code(fresh: dict[str, str]) -> None:
    done = doctor("recipe=eagle3_llama8b", **fresh)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "✗ engine" in done.stdout
    assert "eagle3_llama8b on SGLang" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("eagle3_llama8b would not start here:")


@pytest.mark.thorough
def test_a_recipe_for_another_machine(fresh: dict[str, str]) -> None:
    found = document("recipe=eagle3_llama8b", "--hardware", "h100", **fresh)
    assert (found["exit"], found["engine"]) == (0, "0.5.23")
    assert "error" not in {check["state"] for check in found["checks"]}
    assert all(finding["engine"] == "0.5.23" for finding in found["findings"])


@pytest.mark.thorough
def test_several_versions(fresh: dict[str, str]) -> None:
    words = ["recipe=ngram_qwen7b", "args.tp_sise=2", "--hardware=h100", "--engine=0.5.7,0.5.18"]
    found = document(*words, **fresh)
    assert found["exit"] == 1
    unknown = [f["engine"] for f in found["findings"] if f["code"] == "SPL001"]
    assert unknown == ["0.5.7", "0.5.18"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipe=no_such_recipe"], "no_such_recipe"),
        (["args.port=1"], "no recipe specified"),
        (["recipe=ngram_qwen7b", "nope.x=1"], "unknown key"),
        (["--engine", "nonsense"], "is not a version"),
        (["recipe=ngram_qwen7b", "--engine", "0.4.6.post5"], "cannot be served by"),
        (["--hardware", "h1000"], "unknown hardware"),
        (["--models", "/nonexistent"], "no such directory"),
        (["--nope"], "No such option"),
    ],
)
def test_usage(words: list[str], said: str, fresh: dict[str, str]) -> None:
    done = doctor(*words, **fresh)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.thorough
def test_strict(fresh: dict[str, str]) -> None:
    words = {**fresh, "SGLANG_ENABLE_SPECV2": "1"}
    assert doctor(**words).returncode == 0
    assert doctor("--strict", **words).returncode == 1


@pytest.mark.thorough
def test_a_port_that_is_taken(fresh: dict[str, str]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        found = document("recipe=cpu_ngram", f"args.port={port}", **fresh)
        (line,) = checks(found, "port")
        assert line["state"] == "error"
        assert f"process {os.getpid()}" in line["found"]
        assert "choose another port: args.port=" in line["fix"]
    assert checks(document("recipe=cpu_ngram", f"args.port={port}", **fresh), "port")[0][
        "state"
    ] == "ok"  # fmt: skip


_ORPHAN = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    code = "import time; time.sleep(60)"
    for words in (
        ["sglang::scheduler_TP0", "-c", code],
        [sys.executable, "-c", code, "-m", "sglang.launch_server", "--api-key", "hunter2"],
    ):
        nowhere = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
        print(subprocess.Popen(words, executable=sys.executable, **nowhere).pid, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.fixture
def orphans() -> Iterator[list[int]]:
    """Processes that look like those of an engine whose session has ended."""
    guard._prctl(guard.PR_SET_CHILD_SUBREAPER, 0)  # a launch in an earlier test made us adopt them
    done = subprocess.run(
        [sys.executable, "-c", _ORPHAN], capture_output=True, text=True, check=True
    )
    pids = [int(word) for word in done.stdout.split()]
    try:
        yield pids
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


@pytest.mark.thorough
def test_leftover_engines(orphans: list[int], fresh: dict[str, str]) -> None:
    adopted = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] for pid in orphans
    ]
    if set(adopted) != {"1"}:
        pytest.skip("another process than the first takes in orphans here")
    done = doctor("--output-format", "json", **fresh)
    assert "hunter2" not in done.stdout
    lines = {line["fix"]: line for line in checks(json.loads(done.stdout), "engines")}
    for pid in orphans:
        assert lines[f"kill {pid}"]["state"] == "warning"


@pytest.mark.thorough
def test_no_home_at_all(tmp_path: Path) -> None:
    done = doctor(drop=("HOME", "SPECLAUNCH_HOME", "XDG_CACHE_HOME"))
    assert done.returncode == 0
    nowhere = doctor(HOME="/nonexistent", drop=("SPECLAUNCH_HOME",))
    assert nowhere.returncode == 0
    assert "crashed" not in done.stdout + nowhere.stdout


@pytest.mark.thorough
def test_an_empty_environment() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "speclaunch", "doctor"],
        capture_output=True,
        text=True,
        env={},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_our_letters(encoding: str, fresh: dict[str, str]) -> None:
    done = doctor("recipe=eagle3_llama8b", PYTHONIOENCODING=encoding, **fresh)
    assert (done.returncode, done.stderr) == (1, "")
    assert "  x engine" in done.stdout


@pytest.mark.thorough
def test_an_interpreter_that_hangs(tmp_path: Path, fresh: dict[str, str]) -> None:
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nsleep 48.15\n")
    program.chmod(0o755)
    found = document("recipe=ngram_qwen7b", f"engine.python={tmp_path}", **fresh)
    (line,) = checks(found, "engine")
    assert line["state"] == "unknown"
    left = subprocess.run(["pgrep", "-f", "sleep 48.15"], capture_output=True, check=False)
    assert left.stdout == b""


@pytest.mark.thorough
def test_gpus_and_kernels(tmp_path: Path, engine: Path, fresh: dict[str, str]) -> None:
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml/pynvml.py").write_text(PYNVML)
    gpus = {"PYTHONPATH": str(tmp_path / "nvml"), "HOLDER": str(os.getpid())}
    words = [
        "recipe=eagle3_llama8b",
        "args.tp_size=2",
        "args.mem_fraction_static=0.5",
        f"engine.python={engine}",
    ]
    found = document(*words, **gpus, **fresh)
    assert (found["exit"], found["engine"]) == (1, "0.5.18")
    assert checks(found, "engine")[0]["state"] == "ok"
    (packages,) = checks(found, "packages")
    assert "below 0.4.6" in packages["why"]
    assert packages["fix"] == (
        f"uv pip install --python {engine}/bin/python 'sglang-kernel>=0.4.6'"
    )
    (driver,) = checks(found, "driver")
    assert (driver["state"], driver["why"]) == ("error", "CUDA 13.0 needs driver 580 or newer")
    (gpu,) = checks(found, "gpu")
    assert gpu["found"].startswith("2 x NVIDIA H100 80GB HBM3, 80.0 GiB each")
    share, unbalanced = checks(found, "gpu-memory")
    assert f"(process {os.getpid()}" in share["found"]
    assert "20.5 GiB for weights and KV cache instead of 40.0" in share["why"]
    assert unbalanced["state"] == "error"
    hidden = document(*words, CUDA_VISIBLE_DEVICES="0", **gpus, **fresh)
    assert checks(hidden, "gpu")[0]["state"] == "error"  # one is left for two ranks


@pytest.mark.thorough
def test_a_model_in_the_cache_that_is_not_whole(tmp_path: Path, fresh: dict[str, str]) -> None:
    folder = tmp_path / "hf/hub/models--Qwen--Qwen2.5-7B-Instruct"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "blobs/x.incomplete").write_bytes(b"1234")
    (snapshot / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"]}')
    index = {"metadata": {"total_size": 15 * 10**9}, "weight_map": {"a": "1.safetensors"}}
    index["weight_map"] |= {"b": "2.safetensors"}  # type: ignore[operator]
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / "1.safetensors").touch()
    hub = {"HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "hf_a_secret", **fresh}
    found = document("recipe=ngram_qwen7b", **hub)
    (line,) = checks(found, "model")
    assert line["found"] == "target: Qwen/Qwen2.5-7B-Instruct lacks 2.safetensors"
    assert (line["state"], line["fix"]) == ("warning", "hf download Qwen/Qwen2.5-7B-Instruct")
    assert "hf_a_secret" not in json.dumps(found)
    (offline,) = checks(document("recipe=ngram_qwen7b", HF_HUB_OFFLINE="1", **hub), "model")
    assert offline["state"] == "error"


@pytest.mark.thorough
def test_a_recipe_names_a_directory_that_is_not_there(fresh: dict[str, str]) -> None:
    found = document("recipe=ngram_qwen7b", "args.model_path=/nowhere/model", **fresh)
    (line,) = checks(found, "model")
    assert (line["state"], line["found"]) == ("error", "target: /nowhere/model does not exist")


@pytest.mark.thorough
def test_secrets_of_the_recipe_are_not_shown(fresh: dict[str, str]) -> None:
    words = ["recipe=ngram_qwen7b", "args.api_key=hunter2", "+engine.env.MY_TOKEN=hunter3"]
    for extra in ([], ["--output-format", "json"]):
        done = doctor(*words, *extra, SGLANG_TOKEN="hunter4", **fresh)
        assert done.returncode == 1, done.stderr
        assert not [word for word in ("hunter2", "hunter3", "hunter4") if word in done.stdout]


@pytest.mark.thorough
def test_a_home_that_may_not_be_read(tmp_path: Path) -> None:
    """As another user, whose Python this one's packages fit."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    if os.geteuid() != 0 or python is None or not shutil.which("setpriv"):
        pytest.skip("only root can become somebody else")
    site = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    root = Path(__file__).parents[3]
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "-i"]
    variables = [f"SPECLAUNCH_HOME={closed}/s", f"HOME={closed}", "PATH=/usr/bin:/bin"]
    command = [*as_nobody, *variables, f"PYTHONPATH={root}:{site}", python, "-m", "speclaunch"]
    if subprocess.run([*command, "--version"], capture_output=True).returncode != 0:
        pytest.skip("the packages here do not run on the system's Python")
    for words in (["doctor"], ["doctor", "recipe=cpu_ngram"]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
        assert done.stderr == ""
        assert done.returncode == (len(words) > 1)
        assert f"{closed}/s cannot be written" in done.stdout
        assert "crashed" not in done.stdout


@pytest.mark.thorough
def test_a_recipe_of_the_cpu_engine() -> None:
    cpu = CpuEngine(_HOME)
    if not is_installed(cpu):
        pytest.skip("the CPU engine is not installed")
    found = document("recipe=cpu_ngram", SPECLAUNCH_HOME=str(_HOME))
    assert found["engine"] == "0.5.23"
    assert "error" not in {finding["severity"] for finding in found["findings"]}
    assert checks(found, "cpu-engine")[0]["state"] == "ok"
    assert checks(found, "gpu")[0]["state"] == "ok"
    assert checks(found, "engine") == []
    assert checks(found, "packages") == []
    assert {line["state"] for line in checks(found, "model")} == {"ok"}


@pytest.mark.thorough
def test_it_notes_that_engine_overrides_a_pin() -> None:
    recipe = ("recipe=eagle3_llama8b", "engine.version=0.5.22")
    done = doctor(*recipe, "--engine", "0.5.21")
    note = "note: --engine 0.5.21 overrides engine.version 0.5.22 of the recipe\n"
    assert done.stderr == note
    assert doctor(*recipe, "--engine", "0.5.22").stderr == ""
