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

ORACLE = Path(__file__).with_name("oracle.py")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a release makes of a command line: an error, or the namespace."""

    error: str | None
    values: Mapping[str, Any]
    given: frozenset[str]
    """Destinations that the words themselves set."""


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
        case = {"id": 0, "entry": entry, "words": list(words), "files": dict(files or {})}
        key = json.dumps([version, case])
        if key not in self._known:
            process = self._process(version)
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

    def _process(self, version: str) -> subprocess.Popen[str]:
        if version not in self._running:
            env = {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
            process = subprocess.Popen(
                [str(self.python), str(ORACLE)],
                env=env | {"PYTHONPATH": str(Path(self.site.format(version=version)).absolute())},
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
