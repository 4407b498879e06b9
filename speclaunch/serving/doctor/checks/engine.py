"""Checks of speclaunch, of the engine's SGLang package, and of the compilers that the engine
needs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from speclaunch.engine import (
    TRUE_TEXTS,
    Packages,
    Runtime,
    UnknownFact,
    UnknownVersion,
    held_versions,
    precedes,
    resolve_version,
)
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckState,
    MachineFacts,
    NoAnswer,
    RecipeNeeds,
    Tools,
)


def check_python(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield one line about speclaunch's own installation."""
    own = found.own
    yield CheckLine(
        "speclaunch",
        CheckState.OK,
        f"{own.version} on Python {own.python} ({own.executable}), home {own.home}",
    )


_INSTALL_CPU = "speclaunch engine install cpu"


def check_engine(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield lines about the engine that a launch would start, and about the CPU engine."""
    target = found.target
    if target is None or not target.cpu:
        yield from _engine(found, target)
    yield from _cpu_engine(found, target)


def pip_install(found: MachineFacts, *requirements: str) -> tuple[str, bool]:
    """Return the fix that installs packages for the engine, and True if it is a shell command."""
    runtime = found.runtime
    if not isinstance(runtime, Runtime):
        return f"install {', '.join(requirements)} in the engine's environment", False
    python = str(runtime.interpreter)
    if isinstance(found.packages, Packages) and not found.packages.has_pip:
        argv = ["uv", "pip", "install", "--python", python, *requirements]
    else:
        argv = [python, "-m", "pip", "install", *requirements]
    return shlex.join(argv), True


def _engine(found: MachineFacts, target: RecipeNeeds | None) -> Iterator[CheckLine]:
    runtime = found.runtime
    if isinstance(runtime, NoAnswer):
        text = f"cannot query the engine's interpreter: {runtime.why}"
        fix = "set another interpreter: engine.python=/path/to/python"
        yield CheckLine("engine", CheckState.UNKNOWN, text, fix=fix)
        return
    if isinstance(runtime, UnknownFact):
        state = CheckState.NOTE if target is None else CheckState.ERROR
        yield CheckLine("engine", state, runtime.why, fix=runtime.help)
        return
    where = f"SGLang {runtime.sglang}, Python {runtime.python_version} ({runtime.interpreter})"
    mismatch = _version_mismatch(runtime.sglang or "", target)
    if mismatch is None:
        yield _known(runtime, where)
        return
    state, why, requirement = mismatch
    fix, command = pip_install(found, requirement)
    yield CheckLine("engine", state, where, why, fix, command)


def _version_mismatch(
    installed: str, target: RecipeNeeds | None
) -> tuple[CheckState, str, str] | None:
    """Return state, reason and package to install if another version is needed; otherwise None."""
    if target is None:
        return None
    if target.requested and installed not in target.requested:
        why = f"a launch here with --engine {','.join(target.requested)} would be refused"
        return CheckState.WARNING, why, f"sglang=={target.requested[0]}"
    if target.fits:
        return None
    if target.pinned is not None:
        why = f"{target.name} is pinned to {target.pinned}"
        return CheckState.ERROR, why, f"sglang=={target.pinned}"
    return CheckState.ERROR, f"{target.name} needs {target.needs}", f"sglang{target.needs}"


def _known(runtime: Runtime, where: str) -> CheckLine:
    oldest, newest = held_versions()[0], held_versions()[-1]
    python = shlex.quote(str(runtime.interpreter))
    fix = f"speclaunch engine catalogue add installed --python {python}"
    try:
        resolved = resolve_version(runtime.sglang or "")
    except UnknownVersion as error:
        why = f"{error}: the engine's arguments cannot be checked"
        return CheckLine("engine", CheckState.WARNING, where, why, fix, command=True)
    if not resolved.exact:
        is_old = precedes(resolved.requested, oldest)
        state = CheckState.WARNING if is_old else CheckState.NOTE
        return CheckLine("engine", state, where, resolved.note or "", fix, command=True)
    why = "" if resolved.held == newest else f"the newest known version is {newest}"
    return CheckLine("engine", CheckState.OK, where, why)


def _cpu_engine(found: MachineFacts, target: RecipeNeeds | None) -> Iterator[CheckLine]:
    engine = found.cpu_engine
    needed = target is not None and target.cpu
    if isinstance(engine, UnknownFact):
        yield CheckLine("cpu-engine", CheckState.UNKNOWN, f"unknown: {engine.why}")
    elif engine.installed:
        found_here = f"SGLang {engine.version} for the CPU ({engine.python})"
        yield CheckLine("cpu-engine", CheckState.OK, found_here)
    elif engine.begun:
        state = CheckState.ERROR if needed else CheckState.WARNING
        why = "the installation is incomplete, or from another speclaunch version"
        yield CheckLine("cpu-engine", state, "not complete", why, _INSTALL_CPU, command=True)
    elif needed:
        why = f"{target.name if target else 'the recipe'} runs on it"
        state = CheckState.ERROR
        yield CheckLine("cpu-engine", state, "not installed", why, _INSTALL_CPU, command=True)
    else:
        why = "the real SGLang without a GPU, for trials (1.6 GB)"
        state = CheckState.NOTE
        yield CheckLine("cpu-engine", state, "not installed", why, _INSTALL_CPU, command=True)


def check_compilers(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield lines about a C++ compiler and ninja, which NGRAM needs, and nvcc, which compiles
    kernels."""
    tools = found.tools
    if not isinstance(tools, Tools):
        return
    target = found.target
    if target is not None and target.algorithm == "NGRAM" and not target.compiled:
        yield from _for_ngram(found, tools)
    if found.nvidia is not None and (target is None or not target.cpu):
        if tools.nvcc is not None:
            yield CheckLine("nvcc", CheckState.OK, str(tools.nvcc))
        elif isinstance(found.runtime, Runtime):
            yield CheckLine(
                "nvcc",
                CheckState.NOTE,
                "not found in CUDA_HOME, on PATH or in /usr/local/cuda",
                "the engine needs it to compile kernels that have no prebuilt package",
                "install the CUDA toolkit of torch's CUDA version, or set CUDA_HOME",
            )


def _for_ngram(found: MachineFacts, tools: Tools) -> Iterator[CheckLine]:
    """Yield lines about the compiler and ninja, which NGRAM needs from 0.5.4 on (cpp_ngram)."""
    why = "SGLang needs it to build the C++ code of NGRAM at the first start"
    if tools.compiler is None:
        fix = "install g++ (Debian, Ubuntu: apt-get install g++)"
        yield CheckLine("compiler", CheckState.WARNING, "no C++ compiler on PATH", why, fix)
    else:
        yield CheckLine("compiler", CheckState.OK, str(tools.compiler))
    packages = found.packages
    if isinstance(packages, Packages) and not packages.ninja:
        fix, command = pip_install(found, "ninja")
        text = "ninja is neither on PATH nor next to the engine's Python"
        yield CheckLine("compiler", CheckState.WARNING, text, why, fix, command)


_KERNELS = ("sgl-kernel", "sglang-kernel")
"""Distributions with the engine's own kernels, before and since 0.5.10. Both install the module
`sgl_kernel`."""
_WATCHED = {
    *_KERNELS, "torch", "torchvision", "torchaudio", "transformers", "flashinfer-python",
    "flashinfer-cubin", "sgl-deep-gemm", "xgrammar", "torch-memory-saver", "apache-tvm-ffi",
}  # fmt: skip
"""Packages whose wrong version causes crashes or wrong output; other mismatches are minor."""
_FLASHINFER_BINARIES = ("flashinfer-cubin", "flashinfer-jit-cache")
_SKIP = "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK"
_SHOWN = 6


class _Mismatch(Struct, frozen=True):
    name: str
    required: str
    installed: str | None

    def __str__(self) -> str:
        needed = f" (needs {self.required})" if self.required else ""
        return f"{self.name} {self.installed or 'is missing'}{needed}"

    @property
    def requirement(self) -> str:
        return f"{self.name}{self.required}"


def check_packages(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield lines about packages; nothing without an engine, or for the CPU engine, whose packages
    are pinned."""
    runtime, packages = found.runtime, found.packages
    if (found.target is not None and found.target.cpu) or not isinstance(runtime, Runtime):
        return
    if isinstance(packages, UnknownFact):
        yield CheckLine("packages", CheckState.UNKNOWN, f"unknown: {packages.why}")
        return
    if packages.torch is not None and packages.torch.hip is not None:
        # the requirements of SGLang's wheel are the packages for CUDA
        why = "AMD build: package versions are not compared"
        yield CheckLine("packages", CheckState.OK, _summary(packages), why)
        return
    lines = [
        *_below_minimum(found, packages),
        *_two_kernels(packages, found),
        *_flashinfer(found, packages),
    ]
    named = {*packages.minimums, *packages.installed}
    reported = {name for line in lines for name in named if line.found.startswith(f"{name} ")}
    lines += _mismatches(found, runtime, packages, reported)
    yield from lines
    if all(line.state is CheckState.NOTE for line in lines):
        yield CheckLine("packages", CheckState.OK, _summary(packages))


def _below_minimum(found: MachineFacts, packages: Packages) -> Iterator[CheckLine]:
    """Yield a line per package whose version makes the engine refuse to start on a CUDA GPU
    (`assert_pkg_version`)."""
    target = found.target
    for name, minimum in packages.minimums.items():
        have = packages.installed.get(name)
        if have is not None and not _is_below(have, minimum):
            continue
        uses_flashinfer = target is not None and "flashinfer" in target.attention_backends
        if _is_skipped(found, name) or not (name in _KERNELS or uses_flashinfer):
            continue  # others are checked only if flashinfer is the attention backend
        certain = found.nvidia is not None
        fix, command = pip_install(found, f"{name}{_pin(packages, name) or f'>={minimum}'}")
        yield CheckLine(
            "packages",
            CheckState.ERROR if certain else CheckState.WARNING,
            f"{name} {have or 'is missing'}",
            f"this SGLang refuses to start on a GPU with {name} below {minimum}",
            fix,
            command,
        )


def _is_skipped(found: MachineFacts, name: str) -> bool:
    """True if `_SKIP` is set and the installed SGLang honors it for package `name` (engine.py: from
    0.5.1 for kernels, from 0.5.7 for other packages)."""
    runtime = found.runtime
    version = (isinstance(runtime, Runtime) and runtime.sglang) or "0"
    since = "0.5.1" if name in _KERNELS else "0.5.7"
    return _is_set(found, _SKIP) and not _is_below(version, since)


def _two_kernels(packages: Packages, found: MachineFacts) -> Iterator[CheckLine]:
    both = [name for name in _KERNELS if name in packages.installed]
    if len(both) < len(_KERNELS):
        return
    expected = next((name for name in both if _pin(packages, name)), both[-1])
    extra = next(name for name in both if name != expected)
    yield CheckLine(
        "packages",
        CheckState.WARNING,
        f"{extra} {packages.installed[extra]} and {expected} {packages.installed[expected]}",
        "both install the module sgl_kernel: the later installation overwrote the earlier",
        f"uninstall both, then install {expected}: "
        + pip_install(found, f"{expected}{_pin(packages, expected) or ''}")[0],
    )


def _flashinfer(found: MachineFacts, packages: Packages) -> Iterator[CheckLine]:
    """Yield mismatches between flashinfer-python and its binary packages, whose versions must be
    equal (flashinfer-python 0.6.17, flashinfer/jit/env.py)."""
    main = packages.installed.get("flashinfer-python")
    if main is None or _is_set(found, "FLASHINFER_DISABLE_VERSION_CHECK"):
        return
    for name in _FLASHINFER_BINARIES:
        have = packages.installed.get(name)
        if have is None or have.partition("+")[0] == main.partition("+")[0]:
            continue
        fix, command = pip_install(found, f"{name}=={main}")
        if name != "flashinfer-cubin":  # from its own index, by CUDA version
            fix, command = f"install {name} {main}, or uninstall it", False
        yield CheckLine(
            "packages",
            CheckState.ERROR if found.nvidia is not None else CheckState.WARNING,
            f"{name} {have} next to flashinfer-python {main}",
            "flashinfer cannot be imported with binaries of a different version",
            fix,
            command,
        )


def _mismatches(
    found: MachineFacts, runtime: Runtime, packages: Packages, reported: set[str]
) -> Iterator[CheckLine]:
    wrong = [mismatch for mismatch in _compare(runtime, packages) if mismatch.name not in reported]
    watched = [mismatch for mismatch in wrong if mismatch.name in _WATCHED]
    others = [mismatch for mismatch in wrong if mismatch.name not in _WATCHED]
    if watched:
        fix, command = _install(found, runtime, watched)
        why = f"SGLang {runtime.sglang} was built and tested with other versions"
        yield CheckLine("packages", CheckState.WARNING, _listed(watched), why, fix, command)
    if others:
        fix, command = _install(found, runtime, others)
        yield CheckLine("packages", CheckState.NOTE, _listed(others), "", fix, command)


def _install(
    found: MachineFacts, runtime: Runtime, mismatches: list[_Mismatch]
) -> tuple[str, bool]:
    if len(mismatches) > _SHOWN:
        return pip_install(found, f"sglang=={runtime.sglang}")
    return pip_install(found, *(mismatch.requirement for mismatch in mismatches))


def _compare(runtime: Runtime, packages: Packages) -> Iterator[_Mismatch]:
    """Yield the requirements of the installed SGLang that its environment does not meet."""
    environment = {
        "python_version": ".".join(runtime.python_version.split(".")[:2]),
        "python_full_version": runtime.python_version,
    }
    seen: set[str] = set()
    for requirement in _requirements(packages):
        name = canonicalize_name(requirement.name)
        # up to 0.5.2 GPU requirements are an extra, `srt`, which `pip install sglang[all]` includes
        marker = requirement.marker
        extras = ("", "srt", "runtime-common")
        if name in seen or not (
            marker is None or any(marker.evaluate({**environment, "extra": e}) for e in extras)
        ):
            continue
        seen.add(name)
        have = packages.installed.get(name)
        if name == "sglang":  # its own extras
            continue
        if have is None or not requirement.specifier.contains(have, prereleases=True):
            yield _Mismatch(name, str(requirement.specifier), have)


def _requirements(packages: Packages) -> Iterator[Requirement]:
    for text in packages.requires:
        with suppress(InvalidRequirement):
            yield Requirement(text)


def _listed(mismatches: list[_Mismatch]) -> str:
    shown = [str(mismatch) for mismatch in mismatches[:_SHOWN]]
    more = len(mismatches) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _summary(packages: Packages) -> str:
    names = ("torch", *_KERNELS, "flashinfer-python", "transformers")
    have = [f"{name} {packages.installed[name]}" for name in names if name in packages.installed]
    return ", ".join(have) or "no kernel package is installed"


def _pin(packages: Packages, name: str) -> str | None:
    for requirement in _requirements(packages):
        if canonicalize_name(requirement.name) == name and requirement.specifier:
            return str(requirement.specifier)
    return None


def _is_below(version: str, minimum: str) -> bool:
    try:
        return Version(version) < Version(minimum)
    except InvalidVersion:
        return False


def _is_set(found: MachineFacts, name: str) -> bool:
    return found.env.get(name, "").strip().lower() in TRUE_TEXTS
