"""Where the CPU engine lives, and what its processes need. Pure data: nothing is written here.

Layout below the home that is passed in (see ``speclaunch.home.speclaunch_home``)::

    cpu-engine/
        venv/            the interpreter, with SGLang and its pinned dependencies
        models/NAME/     the tiny models, each written on first use
        cache/           what SGLang and torch compile
        manifest.json    written last: what was installed
        install.log      all that pip and the compiler said
        lock             held by the one process that installs
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

SGLANG_VERSION = "0.5.23"
"""The one release that the shim stands in for."""

SHIM = Path(__file__).with_name("shim")
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
