"""A clone of this repository as it lies here, changes included: what others would be given."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_OURS = (
    "speclaunch",
    "conf",
    "recipes",
    "advisories",
    "models",
    "docs",
    "README.md",
    "LICENSE",
    "pyproject.toml",
)
_ENTRIES = (".pre-commit-hooks.yaml", "action.yml")


def git(cwd: Path, *words: str) -> str:
    """Run git as somebody, whatever is configured here."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, *words], cwd=cwd, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def clone(where: Path) -> Path:
    """A repository with one commit, tagged v1.0.0, of everything that is built and installed."""
    for name in (*_OURS, *_ENTRIES):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, where / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            where.mkdir(exist_ok=True)
            shutil.copy(source, where / name)
    git(where, "init", "-q")
    git(where, "add", "-A")
    git(where, "commit", "-qm", "all")
    git(where, "tag", "v1.0.0")
    return where
