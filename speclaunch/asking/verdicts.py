"""What releases said before, kept in files: by the release, the command, the machine, the facts."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speclaunch.entry_files import EntryFiles
from speclaunch.home import speclaunch_home
from speclaunch.judge.interface import Answer, Question
from speclaunch.reads.states import digest

SWITCH = "SPECLAUNCH_NO_CACHE"
"""The variable that, set to anything, switches it off (as of `lint/cache.py`)."""
FOLDER = "verdicts"
_FORMAT = 1
_MOST_BYTES = 1 << 17
"""Of an entry; a larger one is not kept."""
_MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER = 100, 512 << 10
"""Of one of the 256 folders: all have 128 MiB, and 25,600 entries."""
_BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What reading an entry can end in, whatever stands in it."""


class Verdicts:
    """The kept answers of all releases. One that is missing, broken, or another user's is as good
    as none; what cannot be written is not kept."""

    def __init__(self, folder: Path) -> None:
        self._files = EntryFiles(str(folder), _MOST_BYTES, _MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER)

    def get(self, name: str) -> Answer | None:
        """The answer of that name."""
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(name)
            return None if text is None else _answer(json.loads(text))
        return None

    def put(self, name: str, answer: Answer) -> None:
        """Keep an answer. What could not be judged may be another time."""
        if answer.accepted is not None:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                text = json.dumps(_plain(answer), separators=(",", ":"))
                self._files.put(name, text.encode())

    def seconds(self, judge: str) -> float | None:
        """How long the judge with a digest took to load and answer."""
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(_seconds_name(judge))
            return None if text is None else float(text)
        return None

    def took(self, judge: str, seconds: float) -> None:
        """Keep how long a judge took."""
        self._files.put(_seconds_name(judge), f"{seconds:.3f}".encode())


def opened(*, wanted: bool = True) -> Verdicts | None:
    """The verdicts in speclaunch's home; None where nothing is to be kept."""
    if not wanted or os.environ.get(SWITCH):
        return None
    return Verdicts(speclaunch_home() / FOLDER)


def name_of(judge: str, question: Question, seen: Sequence[str]) -> str:
    """The name of the answer that the judge with a digest gives. `seen`: what it reads on disk."""
    folder = str(question.folder) if seen else ""  # else no path is followed
    said = [
        *(_FORMAT, judge, list(question.words), list(map(list, question.env))),
        *(question.machine, folder, list(map(list, question.configs)), list(seen)),
    ]
    return digest(json.dumps(said).encode("utf-8", "surrogateescape"))


def _seconds_name(judge: str) -> str:
    return digest(f"seconds {judge}".encode())


def _plain(answer: Answer) -> dict[str, Any]:
    return {
        "accepted": answer.accepted,
        "release": answer.release,
        "why": answer.why,
        "kind": answer.kind,
        "place": answer.place,
        "resolved": dict(answer.resolved),
        "line": answer.line,
    }


def _answer(said: Any) -> Answer:
    """Raises TypeError or LookupError for what `_plain` never gives."""
    texts = [said[name] for name in ("release", "why", "kind", "place", "line")]
    if not isinstance(said["accepted"], bool) or not isinstance(said["resolved"], dict):
        raise TypeError("not an answer")
    if not all(isinstance(one, str) for one in texts):
        raise TypeError("not an answer")
    release, why, kind, place, line = texts
    return Answer(said["accepted"], release, why, kind, place, said["resolved"], line)
