"""The files of a judge: the release's own, and what its validation needs of other packages."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from speclaunch import children
from speclaunch.cpu.artifacts import pip_environment
from speclaunch.cpu.manifest import REQUIREMENTS
from speclaunch.errors import InputError, LaunchError, Problem
from speclaunch.facts.runtime import pip_command
from speclaunch.home import expand_user, judges_home

PINNED = ("transformers", "compressed-tensors", "huggingface-hub", "tokenizers")
"""Of what a release pins, what its validation reads configs with."""
LIGHT = (
    *("transformers", "huggingface_hub", "pydantic", "pydantic_core", "annotated-types"),
    *("typing-inspection", "typing_extensions", "msgspec", "orjson", "psutil", "dill"),
    *("PyYAML", "packaging", "filelock", "fsspec", "tqdm", "requests", "urllib3", "idna"),
    *("certifi", "httpx", "httpcore", "h11", "anyio", "sniffio"),
)
"""The packages of a judge without torch, each without what it depends on. Versions: those that the
release pins, else the CPU engine's. The rest is stood in for (worker/light.py)."""
_NEVER = ("*.cu", "*.cuh", "*.hip", "*.so", "*.co", "*.s", "*.h", "*.cpp", "*.md", "*.proto")
"""Files that no validation reads: kernels, and what is compiled."""
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
"""What is left out where the release's first answers did not load it. A question that needs such a
file after all is not judged: the module is missing."""
_PIP_S = 1800.0


def fetch(name: str, source: str | None, place: Path, tell: Callable[[str], None]) -> Path:
    """The wheel or the `sglang` folder to make a judge from. Raises InputError, LaunchError."""
    if source is None:
        from speclaunch.facts.runtime import download_wheel  # noqa: PLC0415  as it can be replaced

        tell(f"fetch SGLang {name}")
        return download_wheel(name, place)
    path = expand_user(source).absolute()
    for found in (path, path / "sglang", path / "python" / "sglang"):
        if (found / "srt" / "server_args.py").is_file():
            return found
    if path.suffix == ".whl" and zipfile.is_zipfile(path):
        return path
    raise InputError(
        Problem(
            f"{source} is neither a wheel nor a folder with SGLang's package",
            help="name a wheel, a checkout, or the folder `sglang` itself",
        )
    )


def lay_out(package: Path, site: Path) -> list[str]:
    """Put the engine's files into `site`; what it pins of `PINNED`, as `transformers==4.57.1`."""
    site.mkdir()
    if package.is_dir():
        skipped = shutil.ignore_patterns("__pycache__", ".git", *_NEVER)
        shutil.copytree(package, site / "sglang", ignore=skipped)
        return _pins(_declared(package))
    with zipfile.ZipFile(package) as wheel:
        names = wheel.namelist()
        wheel.extractall(site, [n for n in names if not _is_any(n, _NEVER)])
    for name in names:  # a release looks for the folders of its kernels' sources, and for no file
        (site / name).parent.mkdir(parents=True, exist_ok=True)
    found = next(site.glob("sglang-*.dist-info/METADATA"), None)
    return _pins(_required(found.read_text(encoding="utf-8")) if found else [])


def _is_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _declared(package: Path) -> list[str]:
    """The requirements of a package folder: by the metadata beside it, or its project's file."""
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


def install_pinned(
    python: Path, site: Path, pinned: Sequence[str], tell: Callable[[str], None], lock: int
) -> None:
    """Over the CPU engine: bring what has to be another version than its own, and nothing else."""
    if not pinned:
        return
    report = site.parent / "report.json"
    pip = children.isolated(python, "-m", "pip")
    _pip(pip, lock, "--dry-run", "--report", str(report), *pinned)
    wanted = []
    for one in json.loads(report.read_text(encoding="utf-8")).get("install", []):
        wanted.append(f"{one['metadata']['name']}=={one['metadata']['version']}")
    if wanted:
        tell(f"fetch {', '.join(wanted)}")
        _pip(pip, lock, "--no-deps", "--target", str(site), *wanted)


def install_light(
    site: Path, pinned: Sequence[str], tell: Callable[[str], None], lock: int
) -> None:
    """Bring the packages of a judge without torch."""
    wanted = light_requirements(pinned)
    tell(f"fetch {wanted[0]} and {len(wanted) - 1} small packages")
    _pip(pip_command(), lock, "--no-deps", "--target", str(site), *wanted)
    for path in site.glob("yaml/_yaml*.so"):  # libyaml: twice the bytes of all the rest of it
        path.unlink()
    hub = _needed_hub(site, wanted)
    if hub is not None:
        for old in site.glob("huggingface_hub*"):
            shutil.rmtree(old)
        tell(f"fetch {hub}")
        _pip(pip_command(), lock, "--no-deps", "--target", str(site), hub)


def light_requirements(pinned: Sequence[str]) -> list[str]:
    """The packages of a judge without torch, transformers first."""
    pins = {}
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    for line in (*lines, *pinned):
        name, equals, _ = line.partition("==")
        if equals and not line.startswith("#"):
            pins[_plain(name.strip())] = line.strip()
    return [pins.get(_plain(name), name) for name in LIGHT]


def _needed_hub(site: Path, wanted: Sequence[str]) -> str | None:
    """The huggingface_hub that transformers takes, where it is not the one that was brought."""
    from packaging.requirements import Requirement  # noqa: PLC0415  only here

    (have,) = [
        one.partition("==")[2] for one in wanted if _plain(one).startswith("huggingface-hub")
    ]
    for path in site.glob("transformers-*.dist-info/METADATA"):
        for line in _required(path.read_text(encoding="utf-8")):
            requirement = Requirement(line)
            if _plain(requirement.name) == "huggingface-hub" and requirement.marker is None:
                if not have or requirement.specifier.contains(have):
                    return None
                return f"huggingface_hub{requirement.specifier}"
    return None


def _pip(pip: Sequence[str], lock: int, *words: str) -> None:
    """Run `pip install`; it holds the lock for as long as it runs, whatever becomes of us."""
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
        raise LaunchError("pip gave no answer within 30 minutes", help="try again") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise LaunchError(
            f"the release's packages cannot be fetched: {(said or ['pip failed'])[-1]}",
            help="check the network and pip's configuration",
        )


def leave_out(site: Path, loaded: Collection[str]) -> None:
    """Remove what no validation reads, of the files that were not loaded."""
    kept = {os.path.realpath(path) for path in loaded}
    own = os.path.realpath(site)
    for path in list(_files(Path(own))):
        name = str(path.relative_to(own))
        if str(path) in kept or path.name == "__init__.py" or "__pycache__" in path.parts:
            continue
        if _is_any(name, _UNUSED) or (name.startswith("sglang/") and path.suffix == ".json"):
            path.unlink()


def _files(site: Path) -> Iterator[Path]:
    for path in site.rglob("*"):
        if path.is_file():
            yield path


def base_python() -> Path:
    """The interpreter of speclaunch without its packages: its environment may go away."""
    base: Any = getattr(sys, "_base_executable", None)
    return Path(os.path.realpath(base or sys.executable))
