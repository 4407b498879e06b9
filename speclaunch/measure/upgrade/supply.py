"""Engines for a comparison of releases: CPU engines installed as needed, or the user's own.

At most two engines are installed at a time, each by its own speclaunch process. An interrupted
installation continues with the next run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    LaunchError,
    Place,
    Problem,
    beating,
    children,
    duration,
    speclaunch_home,
)
from speclaunch.engine import RELEASES, CpuEngine, is_installed, named
from speclaunch.measure.upgrade.release_recipe import ReleaseRecipe
from speclaunch.serving import make_room, mark_on_demand, note_use

_AT_ONCE = 2
_END_SECONDS = 20.0
_TAIL = 400


def interpreters(words: Sequence[str]) -> dict[str, str]:
    """Return the interpreters of `--engine-python` by release. Raises InputError."""
    found: dict[str, str] = {}
    for word in words:
        version, equals, path = word.partition("=")
        place = Place(COMMAND_LINE, text=f"--engine-python {word}")
        if not equals or not version or not path:
            raise InputError(
                Problem("not in the form VERSION=PATH", place, "write 0.5.20=/path/to/bin/python")
            )
        if not Path(path).is_file():
            raise InputError(Problem(f"{path}: no such file", place))
        found[named(version).held] = str(Path(path).absolute())
    return found


class EngineSupply:
    """Engines of the compared releases. Running installations stop when the block ends."""

    def __init__(self, pythons: Mapping[str, str], say: Callable[[str], None]) -> None:
        """`pythons`: the user's interpreters by release; empty for CPU engines."""
        self._pythons, self._say = pythons, say
        self._building: dict[str, tuple[subprocess.Popen[Any], IO[bytes]]] = {}

    def __enter__(self) -> EngineSupply:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _log in self._building.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        for release, (process, log) in self._building.items():
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.close()
            mark_on_demand(self._engine(release))  # the part that exists counts, and makes room
        self._building.clear()

    def available(self) -> tuple[str, ...]:
        """Return the releases with an available engine, oldest first."""
        return tuple(self._pythons) or tuple(reversed(tuple(RELEASES)))

    def installed(self) -> set[str]:
        """Return the releases that can start immediately."""
        if self._pythons:
            return set(self._pythons)
        return {release for release in RELEASES if is_installed(self._engine(release))}

    def _engine(self, release: str) -> CpuEngine:
        return CpuEngine(speclaunch_home(), release)

    def prefetch(self, releases: Sequence[str], *, needed: Collection[str] = ()) -> None:
        """Start installing CPU engines for the first releases without one.

        `needed`: releases whose engines must not be removed to free space. Raises InstallError.
        """
        if self._pythons:
            return
        self._collect()
        due = [name for name in releases if name in RELEASES and name not in self._building]
        due = [release for release in due if not is_installed(self._engine(release))]
        for release in due[: max(0, _AT_ONCE - len(self._building))]:
            for gone in make_room(speclaunch_home(), {*releases, *needed}):
                self._say(f"removed the CPU engine of SGLang {gone} to make room")
            self._say(f"installing the CPU engine of SGLang {release}")
            log = tempfile.TemporaryFile()  # noqa: SIM115  closed with its process
            words = ("engine", "install", "cpu", "--release", release)
            process = children.start(
                children.bound(children.own_command(*words)),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._building[release] = (process, log)

    def is_installable(self, recipe: ReleaseRecipe) -> bool:
        """True if the recipe uses a CPU engine. Raises LaunchError if it needs an interpreter."""
        release, prepared = recipe.version, recipe.prepared()
        if prepared.cpu is not None:
            return True
        if release not in self._pythons and prepared.recipe.deployment.engine.python is None:
            raise LaunchError(
                f"no engine for SGLang {release}",
                help=f"name its interpreter: --engine-python {release}=PATH",
            )
        return False

    def require(self, recipe: ReleaseRecipe) -> None:
        """Wait until the engine of a recipe is installed.

        Raises LaunchError if installation fails, or if the recipe needs an interpreter.
        """
        release = recipe.version
        if not self.is_installable(recipe):
            return
        if not is_installed(self._engine(release)):
            if release not in self._building:
                self._collect(wait=len(self._building) >= _AT_ONCE)
                self.prefetch([release])
            process, _ = self._building[release]
            with beating(
                self._say, lambda seconds: f"SGLang {release}: installing for {duration(seconds)}"
            ):
                process.wait()
            self._collect()
        if not is_installed(self._engine(release)):
            raise LaunchError(
                f"the CPU engine of SGLang {release} cannot be installed",
                help=f"see why: {self._engine(release).install_command}",
            )
        note_use(self._engine(release))

    def _collect(self, *, wait: bool = False) -> None:
        """Remove finished installations; `wait`: first wait until one finishes."""
        for release, (process, log) in list(self._building.items()):
            if wait:
                process.wait()
                wait = False
            if process.poll() is None:
                continue
            if process.returncode == 0:
                mark_on_demand(self._engine(release))
            else:
                log.seek(0)
                tail = log.read()[-_TAIL:].decode(errors="replace").strip().splitlines()
                self._say(f"SGLang {release} was not installed: {tail[-1] if tail else ''}")
            log.close()
            del self._building[release]
