"""The releases' parsers, one process each, asked line by line."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import load

ORACLE = Path(__file__).with_name("oracle.py")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a release makes of a command line: an error, or the namespace."""

    error: str | None
    values: Mapping[str, Any]
    given: frozenset[str]
    """Destinations that the words themselves set."""


@dataclass(frozen=True, slots=True)
class Question:
    """Words behind an entry point of a release, and the files that they name."""

    version: str
    entry: str
    words: tuple[str, ...]
    files: Mapping[str, str]


class Releases:
    """Asks releases; each is started when it is asked first, and every question only once."""

    def __init__(self, python: Path, site: str) -> None:
        """`site` is the folder with the unpacked wheel of a release, `{version}` its version."""
        self.python = python
        self.site = site
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._heads: dict[str, dict[str, Any]] = {}
        self._known: dict[str, Verdict] = {}

    def has(self, version: str) -> bool:
        """Whether the wheel of a release is at hand."""
        return (Path(self.site.format(version=version)) / "sglang").is_dir()

    def ask(
        self,
        version: str,
        entry: str,
        words: Sequence[str],
        files: Mapping[str, str] | None = None,
    ) -> Verdict:
        """What `version` makes of words behind an entry point."""
        return self.answer(Question(version, entry, tuple(words), dict(files or {})))

    def answer(self, question: Question) -> Verdict:
        """What its release makes of a question."""
        entry, words, files = question.entry, list(question.words), dict(question.files)
        case = {"id": 0, "entry": entry, "words": words, "files": files}
        key = json.dumps([question.version, case])
        if key not in self._known:
            process = self._process(question.version)
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            said = json.loads(process.stdout.readline())
            values = {n: v for n, v in said.get("values", {}).items() if n[:1] != "_"}
            given = frozenset(n for n in said.get("given", {}) if n[:1] != "_")
            self._known[key] = Verdict(said["error"], values, given)
        return self._known[key]

    def destinations(self, version: str) -> Mapping[str, str]:
        """Where each flag of a release is stored."""
        self._process(version)
        found: Mapping[str, str] = self._heads[version]["flags"]
        return found

    def stumbled(self) -> dict[str, list[str]]:
        """Modules that were not imported whole, by release."""
        return {version: sorted(head["stumbled"]) for version, head in self._heads.items()}

    def started(self, version: str) -> tuple[list[str], dict[str, str]]:
        """The command of a release's parser, and its environment."""
        site = str(Path(self.site.format(version=version)).absolute())
        env = {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
        return [str(self.python), str(ORACLE)], env | {"PYTHONPATH": site}

    def _process(self, version: str) -> subprocess.Popen[str]:
        if version not in self._running:
            command, env = self.started(version)
            process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line or (head := json.loads(line))["sglang"] != version:
                raise SystemExit(f"{self.site}: no parser of SGLang {version} ({line[:100]!r})")
            self._running[version], self._heads[version] = process, head
        return self._running[version]

    def close(self) -> None:
        """End the processes."""
        for process in self._running.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
        self._running.clear()


class Installed(Releases):
    """An engine that is installed, asked as it is, with nothing replaced."""

    def __init__(self, python: Path, env: Mapping[str, str]) -> None:
        super().__init__(python, "")
        self.env = dict(env)

    def started(self, version: str) -> tuple[list[str], dict[str, str]]:  # noqa: ARG002
        """The command of the engine's parser, and its environment."""
        return [str(self.python), str(ORACLE), "--whole"], self.env


class Catalogued(Releases):
    """Where no engine is at hand: a parser that is built from our catalogue of the release.

    `engines` are asked for their own versions.
    """

    def __init__(self, engines: Mapping[str, Releases] | None = None) -> None:
        super().__init__(Path(), "")
        self.engines = engines or {}

    def answer(self, question: Question) -> Verdict:
        """As the release does, but for a file of `--config`, which nobody reads here."""
        version, entry = question.version, question.entry
        words: Sequence[str] = question.words
        if version in self.engines:
            return self.engines[version].answer(question)
        own = {}
        if entry == "slime":
            own, words = _parted(words)
            words = ["--model-path", "", *words]
        if entry == "serve" and words and not words[0].startswith("-"):
            words = ["--model-path", *words]
        parsed = parse_argv(words, load(version))
        given = frozenset(item.dest for item in parsed.parsed) | own.keys()
        if entry == "slime":
            given -= {"model_path"}
        return Verdict(parsed.error, {**parsed.values, **own}, given)

    def destinations(self, version: str) -> Mapping[str, str]:
        """Where each flag of a release is stored."""
        if version in self.engines:
            return self.engines[version].destinations(version)
        return {flag: a.dest for a in load(version).arguments.values() for flag in a.flags}


def _parted(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options of a slime script: slime's own, and the server's without their prefix."""
    own: dict[str, str] = {}
    servers: list[str] = []
    name = None
    for word in words:
        if word.startswith("--"):
            name = None if word.startswith("--sglang-") else word.lstrip("-").replace("-", "_")
        if name is None:
            servers.append(word.replace("--sglang-", "--", 1))
        elif not word.startswith("--"):
            own[name] = word
    return own, servers


@contextlib.contextmanager
def releases(python: Path, site: str) -> Iterator[Releases]:
    """The releases' parsers, ended at the end."""
    found = Releases(python, site)
    try:
        yield found
    finally:
        found.close()


def same_flags(old: Mapping[str, str], new: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Destinations of two releases that one flag leads to: two names of one argument."""
    return {(dest, new[flag]) for flag, dest in old.items() if flag in new}
