"""Where everything is measured: files, an empty home, and the commands that are compared."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measuring import Clock, Spent, spend
from tests.support.corpora.recipes import recipe
from tests.support.corpora.scripts import manifest, script

PYTHON = sys.executable
SPECLAUNCH = str(Path(sys.executable).with_name("speclaunch"))
YAMLLINT = (PYTHON, "-m", "yamllint")
CHECK_JSONSCHEMA = (PYTHON, "-m", "check_jsonschema")
FOUND = (0, 1)
"""Exit codes of a linter that came to its end."""


@dataclass(slots=True)
class Ground:
    """A folder with the files, and how often and by which clock is measured in it."""

    folder: Path
    rounds: int = 5
    files: int = 1000
    clock: Clock = field(default_factory=Clock)
    _homes: itertools.count[int] = field(default_factory=itertools.count)

    def write(self) -> None:
        """Write the files that do not stand there yet."""
        for name in ("recipes", "mixed", "scripts", "manifests"):
            (self.folder / name).mkdir()
        for number in range(self.files):
            text = script(number)
            (self.folder / "scripts" / f"serve_{number:04}.sh").write_text(text)
            for name in ("recipes", "mixed"):
                (self.folder / name / f"team_{number:04}.yaml").write_text(recipe(number))
            same = manifest(number, len(text.encode()))
            (self.folder / "manifests" / f"sglang_{number:04}.yaml").write_text(same)
        self._examine("mixed")
        self._examine("scripts")
        numbers = itertools.count(self.files)
        while rejected := self._examine("recipes"):
            for path in rejected:
                (self.folder / path).write_text(recipe(next(numbers)))

    def _examine(self, name: str) -> list[str]:
        """Return the files with errors.

        Each file must contain a deployment that is checked; the ratio would flatter otherwise.
        """
        done = subprocess.run(
            [SPECLAUNCH, "lint", name, "--output-format", "json"],
            cwd=self.folder,
            env=self.environment(self.home()),
            capture_output=True,
            check=False,
        )
        report = json.loads(done.stdout)
        unchecked = [one["path"] for one in report["files"] if one["skipped"]]
        broken = [
            f"{one['path']}: {finding['message']}"
            for one in report["files"]
            for finding in one["findings"]
            if finding["code"] == "SPL000"
        ]
        count = report["summary"]["deployments"]
        assert count == self.files and not unchecked and not broken, (count, unchecked, broken[:5])
        return [
            one["path"]
            for one in report["files"]
            if any(finding["severity"] == "error" for finding in one["findings"])
        ]

    def home(self) -> Path:
        """A new empty home."""
        home = self.folder / "homes" / str(next(self._homes))
        home.mkdir(parents=True)
        return home

    def environment(self, home: Path) -> dict[str, str]:
        """What a user has who just installed it: an empty home, and nothing set."""
        return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}

    def reference(self, *command: str, ends: Sequence[int] = (0,)) -> Callable[[], Spent]:
        """Another program's command, in one home that it keeps."""
        home = self.home()
        return lambda: spend(command, self.folder, self.environment(home), ends=ends)

    def cold(
        self, *words: str, ends: Sequence[int] = FOUND, sample_memory: bool = False
    ) -> Callable[[], Spent]:
        """speclaunch, each time with a new home: nothing of it is cached."""

        def run() -> Spent:
            home = self.home()
            try:
                return spend(
                    [SPECLAUNCH, *words],
                    self.folder,
                    self.environment(home),
                    ends=ends,
                    sample_memory=sample_memory,
                )
            finally:
                shutil.rmtree(home)

        return run

    def warm(self, *words: str, ends: Sequence[int] = FOUND) -> Callable[[], Spent]:
        """speclaunch with what its run before left in its home."""
        environment = self.environment(self.home())
        spend([SPECLAUNCH, *words], self.folder, environment, ends=ends)
        return lambda: spend([SPECLAUNCH, *words], self.folder, environment, ends=ends)
