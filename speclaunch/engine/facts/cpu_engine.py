"""Location and state of the CPU engine, and the variables of its processes.

`speclaunch.serving.cpu_engine` installs it; this module writes nothing.

Layout below the home that is passed in (see ``speclaunch.core.home.speclaunch_home``)::

    cpu-engine/
        venv/            the interpreter, with SGLang and its pinned dependencies
        models/NAME/     the tiny models, each written on first use
        cache/           compiled by SGLang and torch
        manifest.json    the installed versions, written last
        install.log      complete output of pip and the compiler
        lock             held by the process that installs
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
"""The one release that the shim supports."""

TORCH = "torch==2.13.0"
"""Pinned separately: from PyPI it is a CUDA build of several gigabytes, so its step may use a
different index (``torch_index``) with CPU builds.
"""

REQUIREMENTS = _FILES / "requirements.txt"
"""All other packages, pinned, including dependencies of dependencies."""

SHIM = _FILES / "shim"
"""Folder for PYTHONPATH of the engine's processes."""

MODEL_MODULES = frozenset(
    {"glm4_moe", "glm4_moe_nextn", "llama", "llama_eagle", "llama_eagle3", "registry", "utils"}
)
"""Modules of ``sglang/srt/models`` that the tiny models need. At startup SGLang would import all
255 modules of that folder, most of which fail without a GPU.
"""

_FIXED: Mapping[str, str] = MappingProxyType(
    {
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",  # models are local folders; disable name lookups
        "OMP_NUM_THREADS": "1",  # with more, some runs fall to a few tokens per second
        "TORCHDYNAMO_DISABLE": "1",  # no compilation on a CPU; saves seconds at startup
        "TOKENIZERS_PARALLELISM": "false",
    }
)


def cpu_engine_home(home: Path) -> Path:
    """Return the folder of the CPU engine below the home of speclaunch."""
    return home / "cpu-engine"


class CpuEngine(Struct, frozen=True):
    """A CPU engine, installed or not; all paths follow from the home."""

    home: Path
    """The home of speclaunch."""

    @property
    def root(self) -> Path:
        """Folder with all files of this engine."""
        return cpu_engine_home(self.home)

    @property
    def venv(self) -> Path:
        """Virtual environment."""
        return self.root / "venv"

    @property
    def python(self) -> Path:
        """Interpreter: a recipe's ``engine.python``."""
        return self.venv / "bin" / "python"

    @property
    def models(self) -> Path:
        """Folder of the tiny models."""
        return self.root / "models"

    @property
    def cache(self) -> Path:
        """Folder of files compiled by SGLang and torch."""
        return self.root / "cache"

    @property
    def manifest(self) -> Path:
        """File with the installed versions; present only after a complete installation."""
        return self.root / "manifest.json"

    @property
    def log(self) -> Path:
        """Log of the installation."""
        return self.root / "install.log"

    @property
    def lock(self) -> Path:
        """File that the installing process locks."""
        return self.root / "lock"

    def model(self, name: str) -> Path:
        """Return the folder of the tiny model ``name``; ``ensure_model`` fills it."""
        return self.models / name

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to set in a process of this engine, over those ``inherited``.

        The caller's ``PATH`` and ``PYTHONPATH`` follow this engine's own entries.
        """
        return dict(_FIXED) | {
            # the compiler driver calls `ninja`, which pip installed next to the interpreter
            "PATH": _in_front(self.venv / "bin", inherited.get("PATH", os.defpath)),
            "PYTHONPATH": _in_front(SHIM, inherited.get("PYTHONPATH", "")),
            "SGLANG_DISABLED_MODEL_ARCHS": ",".join(disabled_models(self.venv)),
            "SGLANG_CACHE_DIR": str(self.cache / "sglang"),
            "SGLANG_JIT_CACHE_DIR": str(self.cache / "sglang" / "jit"),
            "TORCH_EXTENSIONS_DIR": str(self.cache / "torch_extensions"),
        }


def is_installed(engine: CpuEngine) -> bool:
    """True if the engine is complete and matches this version of speclaunch.

    Raises InputError if other users may have made it.
    """
    manifest = read_manifest(engine)
    if manifest is not None:
        require_own(engine.python.parent, "the CPU engine", engine.home)
    return (
        manifest is not None
        and engine.python.exists()  # false also if the system's interpreter was removed
        and manifest.get("key") == installation_key(str(manifest.get("python")))
    )


def read_manifest(engine: CpuEngine) -> dict[str, Any] | None:
    """Return the installed versions (``python``, ``packages``, ``installed_at``, …), or None."""
    return read_json(engine.manifest)


def installation_key(python: str) -> str:
    """Return the fingerprint of the required installation on this version of Python."""
    import hashlib  # noqa: PLC0415  a recipe is read without

    parts = (SGLANG_VERSION, TORCH, python, REQUIREMENTS.read_text(encoding="utf-8"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def disabled_models(venv: Path) -> list[str]:
    """Return the model modules of the installed SGLang that need no import, sorted.

    Empty if SGLang is not installed there.
    """
    found = {
        module.stem
        for folder in site_packages(venv)
        for module in (folder / "sglang" / "srt" / "models").glob("*.py")
    }
    return sorted(found - MODEL_MODULES - {"__init__"})


def site_packages(venv: Path) -> Iterator[Path]:
    """Return the package folders of a virtual environment: one, in practice."""
    return (venv / "lib").glob("python3.*/site-packages")


def _in_front(entry: Path, path: str) -> str:
    """Return ``path`` with ``entry`` as its first element, without duplicates of it."""
    rest = [part for part in path.split(os.pathsep) if part and part != str(entry)]
    return os.pathsep.join([str(entry), *rest])
