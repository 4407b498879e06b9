"""Workloads: prompts from a file or a shipped set, or random tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.core import InputError, Place, Problem, reads, reason, replace_file
from speclaunch.engine import suggest

RANDOM = "random"
"""Name of the workload of random tokens, which a draft model predicts worse than text."""
_SETS = Path(__file__).with_name("prompts")
_FILE_BYTES = 1 << 30
"""Maximum bytes of a prompt file; ShareGPT's own file is 640 MiB."""
_MOST_TEXTS = 10_000
"""Maximum number of prompts read from a file; a round needs fewer."""


class Prompts(Struct, frozen=True):
    """A workload.

    `texts`: prompts; None for random prompts of `input_tokens` tokens. `output_tokens`: tokens per
    answer. `context`: tokens per prompt, lengthened or cut; 0: unchanged. `longest`: maximum tokens
    of a prompt and its answer, beyond which the prompt is skipped; None: no limit.
    """

    name: str
    output_tokens: int
    texts: tuple[str, ...] | None = None
    input_tokens: int = 0
    context: int = 0
    longest: int | None = None

    @property
    def file_name(self) -> str:
        return f"{self.name.replace('/', '_')}{f'-{self.context}' if self.context else ''}"

    def words(self, folder: Path) -> list[str]:
        """Write the prompt file, if any, to `folder`; return the generator's options."""
        size = str(self.output_tokens)
        if self.texts is None:
            return [
                *("--dataset-name", "random-ids", "--random-range-ratio", "1"),
                *("--random-input-len", str(self.input_tokens), "--random-output-len", size),
            ]
        path = folder / f"{self.file_name}.json"
        if not path.exists():
            turns = [[{"value": text}, {"value": "an answer"}] for text in self.texts]
            replace_file(path, json.dumps([{"conversations": turn} for turn in turns]))
        found = [
            *("--dataset-name", "sharegpt", "--dataset-path", str(path)),
            *("--sharegpt-output-len", size),
        ]
        if self.longest is not None:
            found += ["--sharegpt-context-len", str(self.longest)]
        return found


def shipped() -> tuple[str, ...]:
    """Return the names of the shipped prompt sets."""
    return tuple(sorted(path.stem for path in _SETS.glob("*.jsonl")))


def workload(name: str, output_tokens: int, input_tokens: int, context: int = 0) -> Prompts:
    """Return the workload for a name or a file path.

    `input_tokens`: tokens per random prompt. `context`: see `Prompts`. Raises InputError.
    """
    if name == RANDOM:
        return Prompts(RANDOM, output_tokens, None, context or input_tokens, context)
    if name in shipped():
        return Prompts(name, output_tokens, _texts(_SETS / f"{name}.jsonl"), 0, context)
    path = Path(name)
    if path.suffix in (".jsonl", ".json") or path.exists():
        return Prompts(path.stem, output_tokens, _texts(path), 0, context)
    known = (RANDOM, *shipped())
    near = suggest(name, known)
    names = f"use one of {', '.join(known)}, or a JSON file"
    raise InputError(f"unknown workload {name!r}", help=f"{near} {names}" if near else names)


def _texts(path: Path) -> tuple[str, ...]:
    try:
        content = reads.read_text(path, _FILE_BYTES)
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {path}: it is not UTF-8 text", help="save the file as UTF-8"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason(error)}") from error
    found: list[str] = []
    problems: list[Problem] = []
    for place, entry in _entries(path, content):
        text = _text(entry)
        if text is None:
            problems.append(Problem("no prompt", place, _FORM))
        elif text:
            found.append(text)
        if len(found) == _MOST_TEXTS or len(problems) == _MOST_PROBLEMS:
            break
    if problems:
        raise InputError(problems)
    if not found:
        raise InputError(f"{path} has no prompts", help=_FORM)
    return tuple(found)


_MOST_PROBLEMS = 5
_FORM = (
    'write one JSON object per line: {"prompt": "…"}, or {"messages": [{"role": "user", '
    '"content": "…"}]}; or a list of {"conversations": [{"from": "human", "value": "…"}]} '
    "(ShareGPT format)"
)


def _entries(path: Path, content: str) -> Iterator[tuple[Place, Any]]:
    """Yield the entries of a JSON list or of JSON lines, with places; None for a malformed line.

    Raises InputError if a list is not valid JSON.
    """
    if content.lstrip().startswith("["):
        try:
            entries = json.loads(content)
        except RecursionError:
            raise InputError("not JSON: nested too deeply", Place(str(path)), _FORM) from None
        except ValueError as error:
            place = Place(str(path), getattr(error, "lineno", 1), getattr(error, "colno", 1))
            raise InputError(f"not JSON: {error}", place, _FORM) from None
        for number, entry in enumerate(entries, 1):
            yield Place(f"{path}, entry {number}"), entry
        return
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            yield Place(str(path), number, 1), entry


def _text(entry: Any) -> str | None:
    """Return the prompt of an entry; None if the entry has an unknown format.

    Chats: all messages joined, without a template. Conversations: the first message if it is the
    human's, else "". MT-bench: the first turn.
    """
    if not isinstance(entry, dict):
        return None
    questions = entry.get("turns")
    if isinstance(questions, list):
        return str(questions[0]) if questions and isinstance(questions[0], str) else None
    turns = entry.get("conversations", entry.get("conversation"))
    if isinstance(turns, list):
        first = turns[0] if turns and isinstance(turns[0], dict) else {}
        is_human = first.get("from", "human") in ("human", "user")
        return str(first.get("value") or "") if is_human else ""
    inner = entry.get("body")  # from a batch file
    body: dict[str, Any] = inner if isinstance(inner, dict) else entry
    if isinstance(body.get("prompt"), str):
        return str(body["prompt"]) or None
    parts = list(_contents(body.get("messages")))
    return "\n\n".join(parts) or None


def _contents(messages: object) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
