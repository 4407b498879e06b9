"""Who can be asked on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from speclaunch.cpu.environment import SGLANG_VERSION, CpuEngine
from speclaunch.cpu.manifest import require_own
from speclaunch.engine.catalogue import held_versions
from speclaunch.errors import LaunchError
from speclaunch.facts.runtime import find_runtime
from speclaunch.home import speclaunch_home
from speclaunch.judge.asking import EngineJudge, command_of, digest_of, worker_digest
from speclaunch.judge.environments import Kept, kept
from speclaunch.judge.interface import Judge

_MADE: dict[tuple[str, str], EngineJudge] = {}
"""One judge of an interpreter: its loaded worker serves all who ask."""


def all_judges() -> list[Judge]:
    """Added judges first, then the CPU engine."""
    added = [_added(one) for one in kept()]
    engine = cpu_judge()
    return [*added, *([engine] if engine is not None else [])]


def find_judge(version: str | None, python: Path | None) -> Judge | None:
    """See `judge_for`. A fork goes by the name that it was added with, too."""
    if python is not None:
        return _of_interpreter(version, python)
    names = {version}
    names |= {one.release for one in kept() if one.name == version}
    found = [judge for judge in all_judges() if version is None or judge.release in names]
    if version is None:
        held = held_versions()
        found.sort(key=lambda j: held.index(j.release) if j.release in held else -1, reverse=True)
    return found[0] if found else None


def _of_interpreter(version: str | None, python: Path) -> Judge | None:
    """The judge that is this interpreter's SGLang: a known one, or the interpreter itself."""
    for judge in all_judges():
        same = judge.python == python.absolute() and not getattr(judge, "paths", ())
        if same and version in (None, judge.release):
            return judge
    try:
        runtime = find_runtime(str(python))
    except (LaunchError, OSError):
        return None
    is_other = version not in (None, runtime.sglang)
    if runtime.sglang is None or is_other or not runtime.executed:
        return None
    told = json.dumps([dict(runtime.packages), str(runtime.sglang_path)], sort_keys=True)
    return _judge(runtime.sglang, runtime.interpreter, told)


def _added(one: Kept) -> EngineJudge:
    return _judge(one.release, Path(one.python), one.digest, one.paths, light=one.light)


def cpu_judge() -> EngineJudge | None:
    """The CPU engine, if it is installed. Raises InputError if other users may have made it."""
    engine = CpuEngine(speclaunch_home())
    try:
        packages = json.loads(engine.manifest.read_text(encoding="utf-8"))["packages"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    require_own(engine.python.parent, "the CPU engine")
    return _judge(SGLANG_VERSION, engine.python, json.dumps(packages, sort_keys=True))


def _judge(
    release: str, python: Path, told: str, paths: tuple[Path, ...] = (), *, light: bool = False
) -> EngineJudge:
    digest = digest_of(release, told, worker_digest())
    key = (str(python), digest)
    if key not in _MADE:
        command = command_of(python, light=light)
        _MADE[key] = EngineJudge(release, python, digest, paths=paths, command=command)
    return _MADE[key]
