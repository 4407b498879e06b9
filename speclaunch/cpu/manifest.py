"""What is to be installed, and the record of what was."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speclaunch.cpu.environment import SGLANG_VERSION, CpuEngine
from speclaunch.cpu.process import write_atomically
from speclaunch.errors import InputError, Problem
from speclaunch.home import distrust

TORCH = "torch==2.13.0"
"""Pinned apart: from PyPI it is a CUDA build of several gigabytes, so its step may have an index
of its own (``torch_index``), one that offers CPU builds."""

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
"""All the rest, pinned, dependencies of dependencies included."""


def require_own(folder: Path, what: str, home: Path | None = None) -> None:
    """Raise InputError if other users may have made the programs in `folder` (`home.distrust`)."""
    found = distrust(folder, home)
    if found is not None:
        raise InputError(Problem(f"{what} is not executed: {found.why}", help=found.help))


def is_installed(engine: CpuEngine) -> bool:
    """True if the engine is complete and is what this version of speclaunch installs. Raises
    InputError if other users may have made it."""
    manifest = read_manifest(engine)
    if manifest is not None:
        require_own(engine.python.parent, "the CPU engine", engine.home)
    return (
        manifest is not None
        and engine.python.exists()  # false also when the system's interpreter was removed
        and manifest.get("key") == _key(str(manifest.get("python")))
    )


def read_manifest(engine: CpuEngine) -> dict[str, Any] | None:
    """What was installed (``python``, ``packages``, ``installed_at``, …); None when nothing is."""
    try:
        content = json.loads(engine.manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_manifest(
    engine: CpuEngine,
    *,
    python: str,
    packages: dict[str, str],
    built_from: Path,
    torch_index: str | None,
) -> None:
    """Declare the engine complete."""
    manifest = {
        "key": _key(python),
        "sglang": SGLANG_VERSION,
        "python": python,
        "built_from": str(built_from),
        "torch_index": torch_index,
        "installed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": packages,
    }
    write_atomically(engine.manifest, json.dumps(manifest, indent=2) + "\n")


def _key(python: str) -> str:
    """The fingerprint of what is to be installed, on this version of Python."""
    parts = (SGLANG_VERSION, TORCH, python, REQUIREMENTS.read_text(encoding="utf-8"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
