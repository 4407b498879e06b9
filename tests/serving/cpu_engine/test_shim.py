"""The shim in real processes: what it changes, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch.engine.facts.cpu_engine import SHIM, CpuEngine


def run(python: Path | str, code: str, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        [python, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_sitecustomize_further_down_the_path_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the other one', __name__)")
    path = f"{SHIM}{os.pathsep}{tmp_path}"
    for engine in ("0", "1"):
        environment = {"PYTHONPATH": path, "SGLANG_USE_CPU_ENGINE": engine}
        assert run(sys.executable, "", environment) == "the other one sitecustomize"


def test_other_processes_import_nothing_heavy() -> None:
    code = (
        "import sys; print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'json')))"
    )
    environment = {"PYTHONPATH": str(SHIM), "SGLANG_USE_CPU_ENGINE": "1"}
    assert run(sys.executable, code, environment) == "[]"


def test_without_sglang_its_import_fails_as_usual() -> None:
    code = "try: import sglang\nexcept ModuleNotFoundError as error: print(error)"
    environment = {"PYTHONPATH": str(SHIM), "SGLANG_USE_CPU_ENGINE": "1"}
    assert run(sys.executable, code, environment) == "No module named 'sglang'"


def test_memory_of_a_gpu_is_the_hosts_to_nixl(tmp_path: Path) -> None:
    package = tmp_path / "nixl_cu12"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_api.py").write_text(
        "class nixl_agent:\n"
        "    def __init__(self, name, backend=None):\n"
        "        self.name, self.backend = name, backend\n"
        "        self.nixl_mems = {'VRAM': 'gpu', 'DRAM': 'host'}\n"
    )
    code = (
        "from nixl_cu12._api import nixl_agent\n"
        "one = nixl_agent('a', backend='UCX'); print(one.name, one.backend, one.nixl_mems['VRAM'])"
    )
    path = f"{SHIM}{os.pathsep}{tmp_path}"
    for engine, memory in (("0", "gpu"), ("1", "host")):
        environment = {"PYTHONPATH": path, "SGLANG_USE_CPU_ENGINE": engine}
        assert run(sys.executable, code, environment) == f"a UCX {memory}"


@pytest.mark.parametrize("release", ["0.5.18", "0.5.19"])
def test_a_verification_gets_the_lengths_with_its_draft(release: str, tmp_path: Path) -> None:
    early = "        seq_lens = forward_batch.seq_lens\n" if release == "0.5.18" else ""
    (tmp_path / "backend.py").write_text(
        "class IntelAMXAttnBackend:\n"
        "    extend_metadata = (7,)\n"
        "    def forward_extend(self, q, k, v, layer, forward_batch, save=True):\n"
        "        (seq_lens,) = self.extend_metadata\n"
        f"{early}"
        "        return seq_lens, save\n"
    )
    code = (
        "import backend, sys, types; from speclaunch_shim import verify_lengths\n"
        "sys.modules[verify_lengths.BACKEND] = backend; verify_lengths.install()\n"
        "batch = types.SimpleNamespace(seq_lens=3)\n"
        "made = backend.IntelAMXAttnBackend().forward_extend(0, 0, 0, 0, batch, save=False)\n"
        "print(made, batch.seq_lens)"
    )
    environment = {"PYTHONPATH": f"{SHIM}{os.pathsep}{tmp_path}"}
    assert run(sys.executable, code, environment) == "(7, False) 3"


@pytest.mark.thorough
def test_only_the_choice_of_the_backend_sees_amx(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text("def cpu_has_amx_support(): return False\n")
    (tmp_path / "overrides.py").write_text("from common import cpu_has_amx_support\n")
    code = (
        "import common, overrides, sys; from speclaunch_shim import platform_facts\n"
        "sys.modules[platform_facts.OVERRIDES] = overrides; platform_facts.patch_overrides()\n"
        "print(overrides.cpu_has_amx_support(), common.cpu_has_amx_support())"
    )
    environment = {"PYTHONPATH": f"{SHIM}{os.pathsep}{tmp_path}"}
    assert run(sys.executable, code, environment) == "True False"


@pytest.mark.e2e
@pytest.mark.core(0)
def test_the_engine_sees_the_platform_it_needs(
    cpu_engine: CpuEngine, cpu_environment: dict[str, str]
) -> None:
    code = (
        "import gc, sglang, torch, sys\n"
        "assert gc.isenabled()\n"
        "from sglang.srt.runtime_context import get_platform\n"
        "from sglang.srt.utils.common import cpu_has_amx_support, is_cpu\n"
        "import torchvision, triton\n"
        "assert torch.cuda.synchronize() is None\n"
        "assert torch.zeros(1).to('cpu', non_blocking=True).item() == 0\n"
        "print(is_cpu(), get_platform().has_amx, cpu_has_amx_support(), sys.platform, 'done')"
    )
    assert run(cpu_engine.python, code, cpu_environment).endswith("True True False linux done")


@pytest.mark.e2e
@pytest.mark.core(0)
def test_torchvision_imports_without_sglang(
    cpu_engine: CpuEngine, cpu_environment: dict[str, str]
) -> None:
    code = (
        "import importlib.util\n"
        "assert importlib.util.find_spec('torchvision') and importlib.util.find_spec('sglang')\n"
        "import torchvision; print('done')"
    )
    assert run(cpu_engine.python, code, cpu_environment) == "done"
