"""Location and state of the CPU engine, and the environment of its processes.

`speclaunch.serving.cpu_engine` installs it; this module writes nothing.

Layout below the home that is passed in (see ``speclaunch.core.files.speclaunch_home``)::

    cpu-engine/          the default release; any other one is in cpu-engine-RELEASE/
        venv/            the interpreter, with SGLang and its pinned dependencies
        models/NAME/     a tiny model, shared by all releases and written on first use
        cache/           files compiled by SGLang and torch
        manifest.json    the installed versions, written last
        install.log      complete output of pip and the compiler
        lock             held by the installing process
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.core import read_json, require_own
from speclaunch.engine.releases.versions import is_version, within

_FILES = Path(__file__).parents[2] / "serving" / "cpu_engine"

SGLANG_VERSION = "0.5.23"
"""The SGLang release of the default CPU engine."""

TORCH = "torch==2.13.0"
"""Requirement for torch, which is installed in a separate step. The step may use an index of CPU
builds (``torch_index``), because PyPI's build includes CUDA (several gigabytes)."""

REQUIREMENTS = _FILES / "requirements.txt"
"""File with all other packages of the default release, pinned, including indirect dependencies."""

_BEFORE_22 = "openai==2.6.1 tokenizers==0.22.2 transformers==5.12.1"

RELEASES: Mapping[str, str] = MappingProxyType(
    {
        SGLANG_VERSION: "",
        "0.5.22": "openai==2.6.1",
        "0.5.21": _BEFORE_22,
        "0.5.20": f"{_BEFORE_22} xgrammar==0.2.1",
        "0.5.19": f"{_BEFORE_22} xgrammar==0.2.1",
        "0.5.18": f"{_BEFORE_22} xgrammar==0.2.1",
        "0.5.17": f"{_BEFORE_22} xgrammar==0.2.1",
        "0.5.16": f"{_BEFORE_22} xgrammar==0.2.1",
    }
)
"""Releases that serve on a CPU, newest first, each with its pins that differ from `REQUIREMENTS`.

The pins are those of the release's own metadata. torch is the same for all.
"""

*_, _FIRST = RELEASES
"""The first release whose CPU kernels build and verify a draft tree (0.5.16
speculative/eagle_utils.py:51; 0.5.15.post1 has no such kernels)."""

SHIM = _FILES / "shim"
"""Folder on the PYTHONPATH of the engine's processes."""

_NO_SIZE_T = frozenset({"0.5.18", "0.5.17", "0.5.16"})
"""Releases whose NGRAM corpus compiles only with the header in `SHIM` (`size_t` without <cstddef>,
0.5.18 kernels/jit/csrc/ngram_corpus/ngram.h)."""

MODEL_MODULES = frozenset(
    {"glm4_moe", "glm4_moe_nextn", "llama", "llama_eagle", "llama_eagle3", "registry", "utils"}
)
"""Modules of ``sglang/srt/models`` that the tiny models need. At startup SGLang would import all
255 modules of that folder, most of which fail without a GPU."""

_FIXED: Mapping[str, str] = MappingProxyType(
    {
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",  # models are local folders; disable name lookups
        "OMP_NUM_THREADS": "1",  # with more threads, some runs drop to a few tokens per second
        "TORCHDYNAMO_DISABLE": "1",  # no compilation on a CPU; saves seconds at startup
        "TOKENIZERS_PARALLELISM": "false",
    }
)


def cpu_engine_home(home: Path) -> Path:
    """Return the folder of the default CPU engine below speclaunch's home."""
    return home / "cpu-engine"


class CpuEngine(Struct, frozen=True):
    """A CPU engine, installed or not. All paths follow from the home and the release."""

    home: Path
    release: str = SGLANG_VERSION
    """One of `RELEASES`."""

    @property
    def root(self) -> Path:
        """Folder of this engine's files. The models are in the default engine's folder."""
        default = cpu_engine_home(self.home)
        if self.release == SGLANG_VERSION:
            return default
        return default.with_name(f"{default.name}-{self.release}")

    @property
    def install_command(self) -> str:
        option = "" if self.release == SGLANG_VERSION else f" --release {self.release}"
        return f"speclaunch engine install cpu{option}"

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def python(self) -> Path:
        """Path for a recipe's ``engine.python``."""
        return self.venv / "bin" / "python"

    @property
    def models(self) -> Path:
        """Folder of the tiny models, which all releases share."""
        return cpu_engine_home(self.home) / "models"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def manifest(self) -> Path:
        """Present only after a complete installation."""
        return self.root / "manifest.json"

    @property
    def log(self) -> Path:
        return self.root / "install.log"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def model(self, name: str) -> Path:
        """Return the folder of the tiny model ``name``; ``ensure_model`` fills it."""
        return self.models / name

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of this engine's processes, based on `inherited`.

        The inherited ``PATH`` and ``PYTHONPATH`` follow this engine's own entries.
        """
        headers = {}
        if self.release in _NO_SIZE_T:
            name = "CPLUS_INCLUDE_PATH"
            headers[name] = _in_front(SHIM / "include", inherited.get(name, ""))
        return {
            **_FIXED,
            **headers,
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

    Raises InputError if other users could have changed its programs.
    """
    manifest = read_manifest(engine)
    if manifest is not None:
        require_own(engine.python.parent, "the CPU engine", engine.home)
    return (
        manifest is not None
        and engine.python.exists()  # false also if the system's interpreter was removed
        and manifest.get("key") == installation_key(str(manifest.get("python")), engine.release)
    )


def read_manifest(engine: CpuEngine) -> dict[str, Any] | None:
    """Return the manifest (``python``, ``packages``, ``installed_at``, …); None if missing."""
    return read_json(engine.manifest)


def requirements(release: str) -> str:
    """Return the pip requirements for a release of `RELEASES`: all packages except torch."""
    text = REQUIREMENTS.read_text(encoding="utf-8")
    if release == SGLANG_VERSION:
        return text
    pins = dict(pin.split("==") for pin in [f"sglang=={release}", *RELEASES[release].split()])
    lines = (line.partition("==") for line in text.splitlines())
    return "".join(f"{name}{equal}{pins.get(name, pin)}\n" for name, equal, pin in lines)


def why_not_on_cpu(release: str) -> str | None:
    """Return why a release has no CPU engine; None if it has one."""
    if release in RELEASES:
        return None
    if not is_version(release):
        return f"{release!r} is not a release of SGLang"
    if within(release, f"<{_FIRST}"):
        return (
            f"SGLang {release} cannot verify a draft on a CPU: its only kernels are for GPUs"
            f" (CPU kernels since {_FIRST})"
        )
    return f"SGLang {release} is untested on a CPU"


def installation_key(python: str, release: str = SGLANG_VERSION) -> str:
    """Return the fingerprint of a correct installation of `release` on Python version `python`."""

    parts = (release, TORCH, python, requirements(release))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def disabled_models(venv: Path) -> list[str]:
    """Return SGLang's model modules that the tiny models do not need; empty without SGLang."""
    found = {
        module.stem
        for folder in site_packages(venv)
        for module in (folder / "sglang" / "srt" / "models").glob("*.py")
    }
    return sorted(found - MODEL_MODULES - {"__init__"})


def site_packages(venv: Path) -> Iterator[Path]:
    """Yield the package folders of a virtual environment (one, in practice)."""
    return (venv / "lib").glob("python3.*/site-packages")


def _in_front(entry: Path, path: str) -> str:
    rest = [part for part in path.split(os.pathsep) if part and part != str(entry)]
    return os.pathsep.join([str(entry), *rest])
