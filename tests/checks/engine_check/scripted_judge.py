"""A judge that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from speclaunch.checks.engine_check.opinions import EngineQuerier, Verdicts
from speclaunch.checks.engine_check.questions import EngineAnswer, EngineQuestion
from speclaunch.checks.rules.examine import Lookup
from speclaunch.core.resources import models_dir
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.facts.project_settings import EngineCheckMode
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load as load_catalogue

RELEASE = "0.5.23"
MODEL = "Qwen/Qwen3-8B"
"""In the index, with the whole of its config.json."""
RESOLVED = {"page_size": 1, "tp_size": 2}


def accepts(question: EngineQuestion) -> EngineAnswer:
    return EngineAnswer(True, RELEASE, "", "", "", RESOLVED)


def refuses(
    *needed: str, why: str = "these do not go together", place: str = "srt/server_args.py:42"
) -> Callable[[EngineQuestion], EngineAnswer]:
    """Refuses a command that has all of these words (or variables)."""

    def answer(question: EngineQuestion) -> EngineAnswer:
        has = {*question.words, *(name for name, _ in question.env)}
        if has >= set(needed):
            return EngineAnswer(False, RELEASE, why, "ValueError", place, {}, "assert not both")
        return accepts(question)

    return answer


class ScriptedJudge:
    """Answers by a function."""

    release = RELEASE
    python = Path("/opt/engine/bin/python")

    def __init__(
        self, script: Callable[[EngineQuestion], EngineAnswer] = accepts, digest: str = "d"
    ) -> None:
        self.digest = digest
        self.batches: list[list[EngineQuestion]] = []
        self._script = script

    def ask(self, questions: Sequence[EngineQuestion], *, seconds: float) -> list[EngineAnswer]:
        assert seconds > 0
        self.batches.append(list(questions))
        return [self._script(one) for one in questions]

    @property
    def asked(self) -> list[EngineQuestion]:
        return [one for batch in self.batches for one in batch]


def asker(
    judge: ScriptedJudge, folder: Path | None = None, mode: EngineCheckMode = EngineCheckMode.ALWAYS
) -> EngineQuerier:
    kept = None if folder is None else Verdicts(folder)
    return EngineQuerier(mode, kept, lambda version, python: judge if python is None else None)


def plan_of(
    *words: str, env: dict[str, str] | None = None, hardware: str | None = "h200:8"
) -> Plan:
    request = from_words(("--model-path", MODEL, *words), env or {}, load_catalogue(RELEASE))
    lookup = Lookup(hardware=None if hardware is None else declare(hardware))
    assert models_dir().is_dir()
    return resolve(request, lookup.facts(request))


def at_hand(monkeypatch: Any, judge: ScriptedJudge | None) -> None:
    """Put a judge in the place of all that is on this machine."""
    from speclaunch.checks.engine_check import installed_judges

    def found(version: str | None, python: Path | None) -> ScriptedJudge | None:
        fits = judge is not None and version in (None, judge.release)
        return judge if fits and python in (None, ScriptedJudge.python) else None

    monkeypatch.setattr(installed_judges, "find_judge", found)
    monkeypatch.setattr(installed_judges, "all_judges", lambda: [] if judge is None else [judge])
