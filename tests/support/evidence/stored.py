"""What the engine made of each case, as it is stored: load.yaml."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import asdict

from speclaunch.engine.facts.cpu_engine import SGLANG_VERSION
from tests.support import TESTS
from tests.support.corpora.cases import LOADER

from . import models
from .case import Case
from .cases import BY_KEY
from .engine import Run, shown, words
from .models import Healthy

FILE = TESTS / "evidence" / "load.yaml"
_HEAD = f"""\
# What SGLang {SGLANG_VERSION} made of each case on a CPU. Written by tools/load_evidence.py; not by hand.
"""


class Stored(Struct, frozen=True):
    """A run that is stored; `case` tells which state of the case it was."""

    case: str
    command: str
    phase: str
    exit_code: int | None
    error: str
    place: str
    lines: tuple[str, ...]
    accept_length: float | None

    @property
    def serves(self) -> bool:
        """Whether it replied to all that it was asked."""
        return self.phase == "serves"


def identity(case: Case, healthy: Healthy) -> str:
    """A short hash of all that the engine was given: arguments, variables, checkpoints."""
    made = [one and models.fingerprint(one, healthy) for one in (case.target, case.draft)]
    told = json.dumps(
        [case.arguments(), dict(case.env), made, *[True] * case.lifted], sort_keys=True
    )
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def load() -> dict[str, Stored]:
    """All runs, by the name of their case."""
    if not FILE.exists():
        return {}
    found: dict[str, dict[str, Any]] = yaml.load(FILE.read_text(encoding="utf-8"), LOADER) or {}
    return {
        key: Stored(
            case=one["case"],
            command=one["command"],
            phase=one["phase"],
            exit_code=one.get("exit_code"),
            error=one.get("error", ""),
            place=one.get("place", ""),
            lines=tuple(one.get("lines", ())),
            accept_length=one.get("accept_length"),
        )
        for key, one in found.items()
    }


def add(case: Case, run: Run, healthy: Healthy) -> None:
    """Store one run beside the others; those of cases that are no more are dropped."""
    known = load()
    known[case.key] = Stored(
        case=identity(case, healthy),
        command=shown(words(case.arguments()), case.env),
        phase=run.phase,
        exit_code=run.exit_code,
        error=run.error,
        place=run.place,
        lines=tuple(run.lines),
        accept_length=run.accept_length,
    )
    data = {key: _plain(known[key]) for key in BY_KEY if key in known}
    text = _HEAD + yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True)
    beside = FILE.with_suffix(f".{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(FILE)


def _plain(run: Stored) -> dict[str, Any]:
    said = {**asdict(run), "lines": list(run.lines)}
    return {name: value for name, value in said.items() if value not in ("", None, [])}
