"""What is asked of a release's own validation, what it answers, and who can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from speclaunch.record import record


@record
class Question:
    """One command, as it would be started."""

    words: tuple[str, ...]
    """The server's arguments, as argv words; paths of models as they are given."""
    env: tuple[tuple[str, str], ...]
    """Environment of the deployment."""
    machine: str
    """The hardware to pretend, as it is declared: `h200:8`, `cpu`."""
    folder: Path | None
    """Against which relative paths are read; an empty one where it is None."""
    configs: tuple[tuple[str, str], ...] = ()
    """Model id as written, text of its config.json: models that are known without being on disk."""


@record
class Answer:
    """What the release says to one command."""

    accepted: bool | None
    """None: not judged; `why` says the reason (no config.json, hang, death, garbage, …)."""
    release: str
    """The version that was asked."""
    why: str
    """The engine's own words (the last exception's text, the parser's error), or why there are
    none."""
    kind: str
    """The exception's class; `SystemExit` for the parser."""
    place: str
    """`srt/server_args.py:1234`, the line that refused, relative to the sglang package; of an error
    of the parser the argument, `--tp-size`."""
    resolved: Mapping[str, Any] = field(default_factory=dict)
    """The values after resolution, by SGLang's names; empty where it refused."""
    line: str = ""
    """The line of source that refused, where it can be read."""


class Judge(Protocol):
    """A release that can be asked."""

    @property
    def release(self) -> str:
        """The version, as its catalogue names it."""

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""

    @property
    def digest(self) -> str:
        """What its verdicts rest on beside the question: release, packages and worker."""

    def ask(self, questions: Sequence[Question], *, seconds: float) -> list[Answer]:
        """An answer for each question, in order, within about `seconds` in all.

        Never raises for what an engine does: what could not be judged says why.
        """


def judges() -> list[Judge]:
    """The releases that can be asked on this machine: added judges, then the CPU engine."""
    from speclaunch.judge.find import all_judges  # noqa: PLC0415  (it makes what is declared here)

    return all_judges()


def judge_for(version: str | None, python: Path | None) -> Judge | None:
    """The judge for a release (None: the newest at hand), or that of an interpreter with SGLang."""
    from speclaunch.judge.find import find_judge  # noqa: PLC0415

    return find_judge(version, python)
