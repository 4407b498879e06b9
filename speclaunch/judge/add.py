"""Making a judge: the release's own files, the packages that it pins, a first question."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from speclaunch.cpu.environment import CpuEngine
from speclaunch.cpu.manifest import is_installed
from speclaunch.cpu.process import locked
from speclaunch.engine.added_catalogues import every_name, remove_added
from speclaunch.engine.catalogue import add_fork, add_from_package, held_versions
from speclaunch.errors import InputError, LaunchError, Problem
from speclaunch.facts.runtime import Runtime, find_runtime, trust
from speclaunch.home import judges_home, speclaunch_home
from speclaunch.judge.asking import EngineJudge, command_of, digest_of, worker_digest
from speclaunch.judge.environments import (
    SITE,
    Kept,
    folder,
    kept,
    remove,
    size_of,
    sweep,
    write,
)
from speclaunch.judge.interface import Question
from speclaunch.judge.layout import (
    base_python,
    fetch,
    install_light,
    install_pinned,
    lay_out,
    leave_out,
)
from speclaunch.judge.worker.compiled import keep
from speclaunch.record import record

INSTALLED = "installed"
_FIRST_S = 600.0
_NAME = re.compile(r"[\w][\w.+-]{0,80}")
_MODEL = (
    '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,'
    ' "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,'
    ' "vocab_size": 256, "num_hidden_layers": 2, "max_position_embeddings": 2048}'
)
_ABSENT = ("ModuleNotFoundError", "ImportError")
"""How a module ends that needs what is installed for GPUs alone, with torch and without."""

Tell = Callable[[str], None]


class NotLightError(Exception):
    """A release cannot be judged without torch as it would be with it; the text says why."""


@record
class First:
    """What a new judge said first."""

    version: str
    loaded: tuple[str, ...]
    """The files of its modules."""


def add(
    name: str,
    source: str | None = None,
    *,
    python: str | None = None,
    torch: bool = False,
    tell: Tell = lambda _: None,
) -> Kept:
    """Make the judge `name` from a released version, a wheel, a package, or an interpreter's.

    `source` is None for the release that `name` is, `installed`, or a path. `torch`: over the CPU
    engine's, though it would do without. `tell` hears what is under way. A judge of that name is
    replaced when the new one has answered its first question. Raises InputError, LaunchError.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise InputError(Problem(f"{name[:80]!r} cannot name a judge", help="0.5.18, my-fork"))
    waiting = "another process adds a judge: waiting"
    with locked(judges_home() / ".lock", lambda: tell(waiting)) as lock:
        sweep()
        if source == INSTALLED:
            if python is not None:  # the user's own word
                trust(python)
            return _from_interpreter(name, find_runtime(python), tell)
        if torch:
            _cpu_engine()
        with tempfile.TemporaryDirectory(prefix=".new-", dir=judges_home()) as scratch:
            place = Path(scratch)
            package = fetch(name, source, place, tell)
            return _made(name, source, package, place, tell, lock, torch=torch)


def _made(
    name: str, source: str | None, package: Path, place: Path, tell: Tell, lock: int, *, torch: bool
) -> Kept:
    """Lay it out without torch; over the CPU engine's where that would not be exact."""
    site, why = place / SITE, ""
    pinned = lay_out(package, site)
    if not torch:
        try:
            first = _light(name, site, pinned, tell, lock)
            return _finish(name, source, first, base_python(), place, package, light=True)
        except NotLightError as error:
            why = f"SGLang {name} cannot be judged without torch: {error}"
            tell(why)
        shutil.rmtree(site)
        lay_out(package, site)
    engine = _cpu_engine(why)
    install_pinned(engine.python, site, pinned, tell, lock)
    tell("ask the first question")
    first = _first(name, engine.python, (site,), light=False)
    return _finish(name, source, first, engine.python, place, package, light=False)


def _cpu_engine(why: str = "") -> CpuEngine:
    """The CPU engine, whose torch is needed. Raises LaunchError where it is not installed."""
    engine = CpuEngine(speclaunch_home())
    if not is_installed(engine):
        raise LaunchError(
            why or "--torch: a judge over the CPU engine's torch, which is not installed",
            help="install it with `speclaunch engine install cpu`, or name an interpreter that"
            " has SGLang: `--from installed --python PATH`",
        )
    return engine


def _light(name: str, site: Path, pinned: Sequence[str], tell: Tell, lock: int) -> First:
    """A judge without torch, as far as it is exact. Raises NotLightError."""
    install_light(site, pinned, tell, lock)
    tell("ask the first question")
    try:
        first = _first(name, base_python(), (site,), light=True)
        leave_out(site, first.loaded)
        keep(site)
        _first(name, base_python(), (site,), light=True, compiling=False)
        return first
    except LaunchError as error:
        raise NotLightError(error.problems[0].message) from None


def _finish(
    name: str,
    source: str | None,
    first: First,
    python: Path,
    place: Path,
    package: Path,
    *,
    light: bool,
) -> Kept:
    """Put the new folder in the place of the old one."""
    version, site = first.version, place / SITE
    if source is None and version != name:
        raise LaunchError(f"the wheel of SGLang {name} says that it is {version}")
    before = every_name()
    release = _catalogued(package, version, fork=name != version)
    made = Kept(
        name=name,
        release=release,
        python=str(python),
        source=Path(source).name if source else "PyPI",
        digest=_digest(site),
        size=size_of(site),
        light=light,
        catalogue=_brought(release, before),
    )
    try:
        remove(name, catalogue=made.catalogue)
        folder(name).mkdir(parents=True)
        site.rename(folder(name) / SITE)
        write(made)
    except BaseException:
        _undone(made)
        raise
    return made


def _brought(release: str, before: Container[str]) -> str:
    """The catalogue that goes when the judge goes: one that was not there without a judge."""
    of_judges = {one.catalogue for one in kept()}
    return release if release not in before or release in of_judges else ""


def _undone(made: Kept) -> None:
    """Leave nothing of a judge that was not put in place."""
    remove(made.name)
    if made.catalogue and made.catalogue not in {one.catalogue for one in kept()}:
        remove_added(made.catalogue)


def _from_interpreter(name: str, runtime: Runtime, tell: Callable[[str], None]) -> Kept:
    """A judge that is an interpreter with SGLang, as it is: nothing is copied."""
    if runtime.sglang is None or runtime.sglang_path is None:
        raise LaunchError(f"{runtime.interpreter} has no SGLang")
    tell("ask the first question")
    version = _first(name, runtime.interpreter, (), light=False).version
    before = every_name()
    release = _catalogued(runtime.sglang_path, version, fork=name != version)
    packages = json.dumps(dict(runtime.packages), sort_keys=True)
    made = Kept(
        name=name,
        release=release,
        python=str(runtime.interpreter),
        source=INSTALLED,
        digest=digest_of(packages, str(runtime.sglang_path)),
        size=0,
        site=False,
        catalogue=_brought(release, before),
    )
    try:
        remove(name, catalogue=made.catalogue)
        write(made)
    except BaseException:
        _undone(made)
        raise
    return made


def _first(
    name: str, python: Path, paths: Sequence[Path], *, light: bool, compiling: bool = True
) -> First:
    """What the engine says of itself, once it has accepted a plain command."""
    judge = EngineJudge(
        name,
        python,
        worker_digest(),
        paths=paths,
        command=command_of(python, light=light),
        patience=60,
        compiling=compiling and bool(paths),
    )
    words = ("--model-path", "a/model")
    question = Question(words, (), "h100:1", None, (("a/model", _MODEL),))
    try:
        (answer,) = judge.ask([question], seconds=_FIRST_S)
        hello = judge.hello
    finally:
        judge.close()
    version = hello.get("sglang")
    if answer.accepted is not True or not isinstance(version, str):
        raise LaunchError(
            f"the judge {name} does not accept a plain Llama: {answer.why or 'no reason given'}",
            help="name the release that it is, or a package whose dependencies are installed",
        )
    odd = [
        f"{module} ends with {why}"
        for module, why in sorted(hello.get("failed", {}).items())
        if not why.startswith(_ABSENT)
    ]
    if light and odd:
        raise NotLightError(odd[0])
    return First(version, tuple(hello.get("files", ())))


def _catalogued(package: Path, version: str, *, fork: bool) -> str:
    """The catalogue that goes with an engine; made from it where speclaunch has none."""
    if fork:
        return add_fork(package)
    if version not in held_versions():
        add_from_package(package)
    return version


def _digest(site: Path) -> str:
    """What the packages of a judge are, by their files' names, sizes and the text of Python."""
    parts: list[str | Path] = []
    for path in sorted(site.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            parts += [os.fspath(path.relative_to(site)), str(path.stat().st_size)]
            if path.suffix == ".py" and path.is_relative_to(site / "sglang"):
                parts.append(path)
    return digest_of(*parts)
