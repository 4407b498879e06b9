"""Where the CPU engine is, whether it is installed, and the variables of its processes.

`speclaunch.serving.cpu_engine` installs it; this module writes nothing.

Layout below the home that is passed in (see ``speclaunch.core.home.speclaunch_home``)::

    cpu-engine/
        venv/            the interpreter, with SGLang and its pinned dependencies
        models/NAME/     the tiny models, each written on first use
        cache/           what SGLang and torch compile
        manifest.json    written last: what was installed
        install.log      all that pip and the compiler said
        lock             held by the one process that installs
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.core import read_json, require_own

_FILES = Path(__file__).parents[2] / "serving" / "cpu_engine"

SGLANG_VERSION = "0.5.23"
"""The one release that the shim stands in for."""

TORCH = "torch==2.13.0"
"""Pinned apart: from PyPI it is a CUDA build of several gigabytes, so its step may have an index
of its own (``torch_index``), one that offers CPU builds."""

REQUIREMENTS = _FILES / "requirements.txt"
"""All the rest, pinned, dependencies of dependencies included."""

SHIM = _FILES / "shim"
"""The folder that goes on PYTHONPATH of the engine's processes."""

MODEL_MODULES = frozenset(
    {"glm4_moe", "glm4_moe_nextn", "llama", "llama_eagle", "llama_eagle3", "registry", "utils"}
)
"""The modules of ``sglang/srt/models`` that the tiny models need. SGLang would import all 255 of
that folder at its start, most of which fail without a GPU."""

_FIXED: Mapping[str, str] = MappingProxyType(
    {
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",  # models are folders here; a name is not looked up
        "OMP_NUM_THREADS": "1",  # with more, some runs fall to a few tokens per second
        "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled on a CPU; saves seconds at the start
        "TOKENIZERS_PARALLELISM": "false",
    }
)


def cpu_engine_home(home: Path) -> Path:
    """The folder of the CPU engine below the home of speclaunch."""
    return home / "cpu-engine"


class CpuEngine(Struct, frozen=True):
    """A CPU engine at its place, installed or not; all paths follow from the home."""

    home: Path
    """The home of speclaunch."""

    @property
    def root(self) -> Path:
        """The folder with everything of this engine."""
        return cpu_engine_home(self.home)

    @property
    def venv(self) -> Path:
        """The virtual environment."""
        return self.root / "venv"

    @property
    def python(self) -> Path:
        """The interpreter: what a recipe calls ``engine.python``."""
        return self.venv / "bin" / "python"

    @property
    def models(self) -> Path:
        """The folder of the tiny models."""
        return self.root / "models"

    @property
    def cache(self) -> Path:
        """The folder of what SGLang and torch compile."""
        return self.root / "cache"

    @property
    def manifest(self) -> Path:
        """What was installed; present only when the installation is complete."""
        return self.root / "manifest.json"

    @property
    def log(self) -> Path:
        """The log of the installation."""
        return self.root / "install.log"

    @property
    def lock(self) -> Path:
        """The file whose lock the installing process holds."""
        return self.root / "lock"

    def model(self, name: str) -> Path:
        """The folder of the tiny model ``name``; ``ensure_model`` fills it."""
        return self.models / name

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The variables to set in a process of this engine, over those ``inherited``.

        The caller's ``PATH`` and ``PYTHONPATH`` are kept behind this engine's own entries.
        """
        return dict(_FIXED) | {
            # the compiler driver calls `ninja`, which pip put beside the interpreter
            "PATH": _in_front(self.venv / "bin", inherited.get("PATH", os.defpath)),
            "PYTHONPATH": _in_front(SHIM, inherited.get("PYTHONPATH", "")),
            "SGLANG_DISABLED_MODEL_ARCHS": ",".join(disabled_models(self.venv)),
            "SGLANG_CACHE_DIR": str(self.cache / "sglang"),
            "SGLANG_JIT_CACHE_DIR": str(self.cache / "sglang" / "jit"),
            "TORCH_EXTENSIONS_DIR": str(self.cache / "torch_extensions"),
        }


def is_installed(engine: CpuEngine) -> bool:
    """True if the engine is complete and is what this version of speclaunch installs. Raises
    InputError if other users may have made it."""
    manifest = read_manifest(engine)
    if manifest is not None:
        require_own(engine.python.parent, "the CPU engine", engine.home)
    return (
        manifest is not None
        and engine.python.exists()  # false also when the system's interpreter was removed
        and manifest.get("key") == installation_key(str(manifest.get("python")))
    )


def read_manifest(engine: CpuEngine) -> dict[str, Any] | None:
    """What was installed (``python``, ``packages``, ``installed_at``, …); None when nothing is."""
    return read_json(engine.manifest)


def installation_key(python: str) -> str:
    """The fingerprint of what is to be installed, on this version of Python."""
    import hashlib  # noqa: PLC0415  a recipe is read without

    parts = (SGLANG_VERSION, TORCH, python, REQUIREMENTS.read_text(encoding="utf-8"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def disabled_models(venv: Path) -> list[str]:
    """The model modules of the installed SGLang that need not be imported, sorted.

    Empty when SGLang is not installed there.
    """
    found = {
        module.stem
        for folder in site_packages(venv)
        for module in (folder / "sglang" / "srt" / "models").glob("*.py")
    }
    return sorted(found - MODEL_MODULES - {"__init__"})


def site_packages(venv: Path) -> Iterator[Path]:
    """The folders of a virtual environment that hold its packages: one, in practice."""
    return (venv / "lib").glob("python3.*/site-packages")


def _in_front(entry: Path, path: str) -> str:
    """``path`` with ``entry`` as its first element, and only there."""
    rest = [part for part in path.split(os.pathsep) if part and part != str(entry)]
    return os.pathsep.join([str(entry), *rest])
