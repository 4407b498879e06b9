"""Install a judge: a release's files and pinned packages, tested with a first question."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Collection, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.engine_check.engine_judge import (
    EngineJudge,
    command_of,
    digest_of,
    worker_digest,
)
from speclaunch.checks.engine_check.installed_judges import (
    SITE,
    AddedJudge,
    added_judges,
    folder,
    remove,
    size_of,
    sweep,
    write,
)
from speclaunch.checks.engine_check.questions import EngineQuestion
from speclaunch.checks.engine_check.worker.compiled import pack
from speclaunch.core import (
    InputError,
    LaunchError,
    children,
    expand_user,
    judges_home,
    locked,
    speclaunch_home,
)
from speclaunch.engine import (
    REQUIREMENTS,
    CpuEngine,
    Runtime,
    add_fork,
    add_from_package,
    download_wheel,
    every_name,
    find_runtime,
    held_versions,
    is_installed,
    pip_command,
    pip_environment,
    remove_added,
    trust,
)

INSTALLED = "installed"
_FIRST_S = 600.0
_NAME = re.compile(r"[\w][\w.+-]{0,80}")
_MODEL = (
    '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,'
    ' "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,'
    ' "vocab_size": 256, "num_hidden_layers": 2, "max_position_embeddings": 2048}'
)
_ABSENT = ("ModuleNotFoundError", "ImportError")
"""Errors expected when modules that need GPU-only packages are imported."""

Tell = Callable[[str], None]


class NotLightError(Exception):
    """A release cannot validate without torch; the message is the reason."""


class First(Struct, frozen=True):
    """SGLang version and loaded files that a new judge reports."""

    version: str
    loaded: tuple[str, ...]
    """Files of the modules that the worker has loaded."""


def add(
    name: str,
    source: str | None = None,
    *,
    python: str | None = None,
    torch: bool = False,
    tell: Tell = lambda _: None,
) -> AddedJudge:
    """Install and return the judge `name`, from a release, a wheel, a package, or an interpreter.

    `source`: None (the release `name`), `installed` (in `python`), or a path. `torch`: use the CPU
    engine's torch even if not needed. `tell` receives progress messages. An existing judge `name`
    is replaced once the new judge has answered its first question. Raises InputError, LaunchError.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        help_ = "use a name such as 0.5.18"
        raise InputError(f"{name[:80]!r} is not a valid judge name", help=help_)
    waiting = "another process is adding a judge: waiting"
    with locked(judges_home() / ".lock", lambda: tell(waiting)) as lock:
        sweep()
        if source == INSTALLED:
            if python is not None:  # named by the user
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
) -> AddedJudge:
    """Return a new judge, with the CPU engine's torch if requested or needed."""
    site, why = place / SITE, ""
    pinned = lay_out(package, site)
    if not torch:
        try:
            first = _light(name, site, pinned, tell, lock)
            return _finish(name, source, first, base_python(), place, package, light=True)
        except NotLightError as error:
            why = f"SGLang {name} cannot validate without torch: {error}"
            tell(why)
        shutil.rmtree(site)
        lay_out(package, site)
    engine = _cpu_engine(why)
    install_pinned(engine.python, site, pinned, tell, lock)
    tell("run the first check")
    first = _first(name, engine.python, (site,), light=False)
    return _finish(name, source, first, engine.python, place, package, light=False)


def _cpu_engine(why: str = "") -> CpuEngine:
    """Return the CPU engine, which provides torch. Raises LaunchError if it is not installed."""
    engine = CpuEngine(speclaunch_home())
    if not is_installed(engine):
        raise LaunchError(
            why or "--torch needs the CPU engine, which is not installed",
            help=(
                "install it with `speclaunch engine install cpu`, or pass an interpreter with "
                "SGLang: `--from installed --python PATH`"
            ),
        )
    return engine


def _light(name: str, site: Path, pinned: Sequence[str], tell: Tell, lock: int) -> First:
    """Install a judge without torch; return its first answer. Raises NotLightError."""
    install_light(site, pinned, tell, lock)
    tell("run the first check")
    try:
        first = _first(name, base_python(), (site,), light=True)
        leave_out(site, first.loaded)
        pack(site)
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
) -> AddedJudge:
    """Store and return a new judge, replacing an older judge. Raises LaunchError."""
    site = place / SITE
    if source is None and first.version != name:
        raise LaunchError(f"the wheel of SGLang {name} contains version {first.version}")
    made = AddedJudge(
        name=name,
        release=first.version,
        python=str(python),
        source=Path(source).name if source else "PyPI",
        digest=_digest(site),
        size=size_of(site),
        light=light,
    )
    return _put_in_place(made, package, site)


def _from_interpreter(name: str, runtime: Runtime, tell: Tell) -> AddedJudge:
    """Store and return a judge that runs an interpreter's own SGLang; no files are copied."""
    if runtime.sglang is None or runtime.sglang_path is None:
        raise LaunchError(f"SGLang is not installed for {runtime.interpreter}")
    tell("run the first check")
    packages = json.dumps(dict(runtime.packages), sort_keys=True)
    made = AddedJudge(
        name=name,
        release=_first(name, runtime.interpreter, (), light=False).version,
        python=str(runtime.interpreter),
        source=INSTALLED,
        digest=digest_of(packages, str(runtime.sglang_path)),
        size=0,
        site=False,
    )
    return _put_in_place(made, runtime.sglang_path)


def _put_in_place(made: AddedJudge, package: Path, site: Path | None = None) -> AddedJudge:
    """Store a judge and its engine's catalogue, replacing an older judge; return the judge.

    On failure, remove both. `made.release` must be the engine's own version.
    """
    before = every_name()
    release = _catalogued(package, made.release, fork=made.name != made.release)
    of_judges = {judge.catalogue for judge in added_judges()}
    # a catalogue that exists only for judges is removed with the last of them
    brought = release if release not in before or release in of_judges else ""
    made = replace(made, release=release, catalogue=brought)
    try:
        remove(made.name, catalogue=brought)
        if site is not None:
            folder(made.name).mkdir(parents=True)
            site.rename(folder(made.name) / SITE)
        write(made)
    except BaseException:
        remove(made.name)
        if brought and brought not in {judge.catalogue for judge in added_judges()}:
            remove_added(brought)
        raise
    return made


def _first(
    name: str, python: Path, paths: Sequence[Path], *, light: bool, compiling: bool = True
) -> First:
    """Return a new judge's SGLang version and loaded files after it accepts a plain command."""
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
    question = EngineQuestion(words, (), "h100:1", None, (("a/model", _MODEL),))
    try:
        (answer,) = judge.ask([question], seconds=_FIRST_S)
        hello = judge.hello
    finally:
        judge.close()
    version = hello.get("sglang")
    if answer.accepted is not True or not isinstance(version, str):
        raise LaunchError(
            f"the judge {name} rejects a plain command: {answer.why or 'unknown reason'}",
            help="pass the matching release, or a package whose dependencies are installed",
        )
    odd = [
        f"{module} fails with {why}"
        for module, why in sorted(hello.get("failed", {}).items())
        if not why.startswith(_ABSENT)
    ]
    if light and odd:
        raise NotLightError(odd[0])
    return First(version, tuple(hello.get("files", ())))


def _catalogued(package: Path, version: str, *, fork: bool) -> str:
    """Return the version of an engine's catalogue, which is generated if missing."""
    if fork:
        return add_fork(package)
    if version not in held_versions():
        add_from_package(package)
    return version


def _digest(site: Path) -> str:
    """Return a digest of a judge's packages: file names, sizes, and SGLang's Python code."""
    parts: list[str | Path] = []
    for path in sorted(site.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            parts += [os.fspath(path.relative_to(site)), str(path.stat().st_size)]
            if path.suffix == ".py" and path.is_relative_to(site / "sglang"):
                parts.append(path)
    return digest_of(*parts)


PINNED = ("transformers", "compressed-tensors", "huggingface-hub", "tokenizers")
"""Packages that a release pins and its validation uses to read configs."""
LIGHT = (
    *("transformers", "huggingface_hub", "pydantic", "pydantic_core", "annotated-types"),
    *("typing-inspection", "typing_extensions", "msgspec", "orjson", "psutil", "dill"),
    *("PyYAML", "packaging", "filelock", "fsspec", "tqdm", "requests", "urllib3", "idna"),
    *("certifi", "httpx", "httpcore", "h11", "anyio", "sniffio"),
)
"""Packages of a judge without torch. They are installed without dependencies, in the release's
pinned versions or else the CPU engine's. Stand-ins replace other packages (worker/light.py)."""
_NEVER = ("*.cu", "*.cuh", "*.hip", "*.so", "*.co", "*.s", "*.h", "*.cpp", "*.md", "*.proto")
"""Files that no validation reads, such as kernel sources and compiled files."""
_UNUSED = (
    *("sglang/multimodal_gen/*", "sglang/test/*", "sglang/benchmark/*", "sglang/api/*"),
    *("sglang/bench_*.py", "sglang/kernels/*", "sglang/jit_kernel/*", "sglang/srt/models/*"),
    *("sglang/srt/layers/*", "sglang/srt/entrypoints/*", "sglang/srt/mem_cache/*"),
    *("sglang/srt/disaggregation/*", "sglang/srt/hardware_backend/*", "sglang/srt/multimodal/*"),
    *("sglang/srt/lora/*", "sglang/srt/debug_utils/*", "sglang/srt/model_loader/*"),
    *("transformers/models/*/modeling_*.py", "transformers/models/*/modular_*.py"),
    *("transformers/models/*/image_processing_*.py", "transformers/models/*/processing_*.py"),
    *("transformers/models/*/tokenization_*.py", "transformers/models/*/video_processing_*.py"),
    *("transformers/models/*/feature_extraction_*.py", "transformers/models/*/convert_*.py"),
    *("transformers/cli/*", "transformers/pipelines/*", "transformers/trainer*.py"),
    *("transformers/testing_utils.py", "transformers/exporters/*", "transformers/data/*"),
    *("transformers/generation/*", "transformers/integrations/*", "transformers/*_mistral*.py"),
    *("transformers/training_args*.py", "transformers/optimization.py", "transformers/loss/*"),
    *("transformers/models/*/generation_*.py", "transformers/quantizers/*"),
    *("huggingface_hub/inference/*", "huggingface_hub/cli/*"),
    *("fsspec/implementations/*", "sglang/srt/managers/*", "sglang/srt/parser/*"),
    *("*.dist-info/RECORD", "*.dist-info/licenses/*", "*.dist-info/sboms/*", "*/tests/*"),
    "bin/*",
)
"""Files removed unless they were loaded for the judge's first answer. A question that needs a
removed file gets no verdict."""
_PIP_S = 1800.0


def fetch(name: str, source: str | None, place: Path, tell: Tell) -> Path:
    """Return the wheel (downloaded if `source` is None) or the `sglang` folder.

    Raises InputError, LaunchError.
    """
    if source is None:
        tell(f"fetch SGLang {name}")
        return download_wheel(name, place)
    path = expand_user(source).absolute()
    for found in (path, path / "sglang", path / "python" / "sglang"):
        if (found / "srt" / "server_args.py").is_file():
            return found
    if path.suffix == ".whl" and zipfile.is_zipfile(path):
        return path
    raise InputError(
        f"{source} is neither a wheel nor a folder with SGLang's package",
        help="pass a wheel, a checkout, or the folder `sglang` itself",
    )


def lay_out(package: Path, site: Path) -> list[str]:
    """Copy the engine into `site`; return its `PINNED` requirements (`transformers==4.57.1`)."""
    site.mkdir()
    if package.is_dir():
        skipped = shutil.ignore_patterns("__pycache__", ".git", *_NEVER)
        shutil.copytree(package, site / "sglang", ignore=skipped)
        return _pins(_declared(package))
    with zipfile.ZipFile(package) as wheel:
        names = wheel.namelist()
        wheel.extractall(site, [n for n in names if not _is_any(n, _NEVER)])
    for name in names:  # a release reads the folders of its kernel sources, but no file in them
        (site / name).parent.mkdir(parents=True, exist_ok=True)
    found = next(site.glob("sglang-*.dist-info/METADATA"), None)
    return _pins(_required(found.read_text(encoding="utf-8")) if found else [])


def _is_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _declared(package: Path) -> list[str]:
    """Return the requirements of a package folder, from adjacent metadata or its project file."""
    for path in package.parent.glob("sglang-*.dist-info/METADATA"):
        return _required(path.read_text(encoding="utf-8"))
    try:
        project = tomllib.loads((package.parent / "pyproject.toml").read_text(encoding="utf-8"))
        return [str(line) for line in project["project"]["dependencies"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _required(metadata: str) -> list[str]:
    return HeaderParser().parsestr(metadata).get_all("Requires-Dist") or []


def _pins(requirements: Sequence[str]) -> list[str]:
    found = []
    for line in requirements:
        pin = re.match(r"([A-Za-z0-9._-]+)\s*\(?(==[\w.+!]+)\)?\s*$", line)
        if pin and _plain(pin[1]) in PINNED:
            found.append(f"{pin[1]}{pin[2]}")
    return found


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def install_pinned(python: Path, site: Path, pinned: Sequence[str], tell: Tell, lock: int) -> None:
    """Install the `pinned` packages, except those that the CPU engine has in the same version."""
    if not pinned:
        return
    report = site.parent / "report.json"
    pip = children.isolated(python, "-m", "pip")
    _pip(pip, lock, "--dry-run", "--report", str(report), *pinned)
    packages = json.loads(report.read_text(encoding="utf-8")).get("install", [])
    metadata = [package["metadata"] for package in packages]
    requirements = [f"{package['name']}=={package['version']}" for package in metadata]
    if requirements:
        tell(f"fetch {', '.join(requirements)}")
        _pip(pip, lock, "--no-deps", "--target", str(site), *requirements)


def install_light(site: Path, pinned: Sequence[str], tell: Tell, lock: int) -> None:
    """Install the packages of a judge without torch."""
    requirements = light_requirements(pinned)
    tell(f"fetch {requirements[0]} and {len(requirements) - 1} small packages")
    _pip(pip_command(), lock, "--no-deps", "--target", str(site), *requirements)
    for path in site.glob("yaml/_yaml*.so"):  # libyaml is twice as large as the rest of the package
        path.unlink()
    hub = _needed_hub(site, requirements)
    if hub is not None:
        for old in site.glob("huggingface_hub*"):
            shutil.rmtree(old)
        tell(f"fetch {hub}")
        _pip(pip_command(), lock, "--no-deps", "--target", str(site), hub)


def light_requirements(pinned: Sequence[str]) -> list[str]:
    """Return the requirements of a judge without torch, transformers first."""
    pins = {}
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    for line in (*lines, *pinned):
        name, equals, _ = line.partition("==")
        if equals and not line.startswith("#"):
            pins[_plain(name.strip())] = line.strip()
    return [pins.get(_plain(name), name) for name in LIGHT]


def _needed_hub(site: Path, pins: Sequence[str]) -> str | None:
    """Return transformers' huggingface_hub requirement; None if the pinned version meets it."""
    from packaging.requirements import Requirement  # noqa: PLC0415  only here

    (have,) = [pin.partition("==")[2] for pin in pins if _plain(pin).startswith("huggingface-hub")]
    for path in site.glob("transformers-*.dist-info/METADATA"):
        for line in _required(path.read_text(encoding="utf-8")):
            requirement = Requirement(line)
            if _plain(requirement.name) == "huggingface-hub" and requirement.marker is None:
                if not have or requirement.specifier.contains(have):
                    return None
                return f"huggingface_hub{requirement.specifier}"
    return None


def _pip(pip: Sequence[str], lock: int, *words: str) -> None:
    """Run `pip install`, which holds the lock until it ends, even if this process dies."""
    quiet = ("--quiet", "--no-input", "--disable-pip-version-check", "--no-compile")
    try:
        done = children.run(
            [*pip, "install", *quiet, *words],
            env=pip_environment(),
            cwd=judges_home(),
            timeout=_PIP_S,
            pass_fds=(lock,),
        )
    except subprocess.TimeoutExpired:
        raise LaunchError("pip did not finish within 30 minutes", help="try again") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise LaunchError(
            f"the release's packages cannot be fetched: {(errors or ['pip failed'])[-1]}",
            help="check the network and pip's configuration",
        )


def leave_out(site: Path, loaded: Collection[str]) -> None:
    """Remove files that no validation reads, unless they were loaded."""
    used = {os.path.realpath(path) for path in loaded}
    own = os.path.realpath(site)
    for path in [path for path in Path(own).rglob("*") if path.is_file()]:
        name = str(path.relative_to(own))
        if str(path) in used or path.name == "__init__.py" or "__pycache__" in path.parts:
            continue
        if _is_any(name, _UNUSED) or (name.startswith("sglang/") and path.suffix == ".json"):
            path.unlink()


def base_python() -> Path:
    """Return speclaunch's base interpreter, which outlives its virtual environment."""
    base: Any = getattr(sys, "_base_executable", None)
    return Path(os.path.realpath(base or sys.executable))
