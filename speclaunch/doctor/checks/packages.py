"""Whether the packages next to an SGLang are those that it was built to run with."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from speclaunch.doctor.check_line import CheckLine, CheckState
from speclaunch.doctor.checks.engine import pip_install
from speclaunch.doctor.machine_facts import MachineFacts
from speclaunch.engine.catalogue import TRUE_TEXTS
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.packages import Packages
from speclaunch.facts.runtime import Runtime
from speclaunch.record import record

_KERNELS = ("sgl-kernel", "sglang-kernel")
"""The engine's own kernels; the name changed with 0.5.10. Both fill one package, `sgl_kernel`."""
_WATCHED = frozenset(
    {
        *_KERNELS,
        "torch",
        "torchvision",
        "torchaudio",
        "transformers",
        "flashinfer-python",
        "flashinfer-cubin",
        "sgl-deep-gemm",
        "xgrammar",
        "torch-memory-saver",
        "apache-tvm-ffi",
    }
)
"""A wrong version of these is a crash or wrong output; of others it is an inconvenience."""
_FLASHINFER_BINARIES = ("flashinfer-cubin", "flashinfer-jit-cache")
_SKIP = "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK"
_SHOWN = 6


@record
class _Mismatch:
    name: str
    wanted: str
    installed: str | None

    def __str__(self) -> str:
        wanted = f" (wants {self.wanted})" if self.wanted else ""
        return f"{self.name} {self.installed or 'is missing'}{wanted}"

    @property
    def requirement(self) -> str:
        return f"{self.name}{self.wanted}"


def check_packages(found: MachineFacts) -> Iterator[CheckLine]:
    """Nothing where there is no engine, or where it is the CPU engine, pinned as a whole."""
    runtime, packages = found.runtime, found.packages
    if (found.target is not None and found.target.cpu) or not isinstance(runtime, Runtime):
        return
    if isinstance(packages, UnknownFact):
        yield CheckLine("packages", CheckState.UNKNOWN, f"unknown: {packages.why}")
        return
    if packages.torch is not None and packages.torch.hip is not None:
        # what SGLang's wheel asks for are the packages for CUDA
        yield CheckLine(
            "packages", CheckState.OK, _summary(packages), "a build for AMD: not compared"
        )
        return
    said = [
        *_below_minimum(found, packages),
        *_two_kernels(packages, found),
        *_flashinfer(found, packages),
    ]
    named = {*packages.minimums, *packages.installed}
    told = {name for line in said for name in named if line.found.startswith(f"{name} ")}
    said += _mismatches(found, runtime, packages, told)
    yield from said
    if all(line.state is CheckState.NOTE for line in said):
        yield CheckLine("packages", CheckState.OK, _summary(packages))


def _below_minimum(found: MachineFacts, packages: Packages) -> Iterator[CheckLine]:
    """What the engine itself refuses to start with on a CUDA GPU (`assert_pkg_version`)."""
    target = found.target
    for name, minimum in packages.minimums.items():
        have = packages.installed.get(name)
        if have is not None and not _is_below(have, minimum):
            continue
        asked = target is not None and "flashinfer" in target.attention_backends
        if _is_skipped(found, name) or not (name in _KERNELS or asked):
            continue  # others are looked at only when flashinfer is the attention backend
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
    """Whether a variable switches the check of a package off: not before 0.5.1 (engine.py)."""
    runtime = found.runtime
    version = (isinstance(runtime, Runtime) and runtime.sglang) or "0"
    since = "0.5.1" if name in _KERNELS else "0.5.7"
    return _is_set(found, _SKIP) and not _is_below(version, since)


def _two_kernels(packages: Packages, found: MachineFacts) -> Iterator[CheckLine]:
    both = [name for name in _KERNELS if name in packages.installed]
    if len(both) < len(_KERNELS):
        return
    wanted = next((name for name in both if _pin(packages, name)), both[-1])
    extra = next(name for name in both if name != wanted)
    yield CheckLine(
        "packages",
        CheckState.WARNING,
        f"{extra} {packages.installed[extra]} and {wanted} {packages.installed[wanted]}",
        "both are one package, sgl_kernel: the one installed last has overwritten the other",
        f"uninstall both, then install {wanted}: "
        + pip_install(found, f"{wanted}{_pin(packages, wanted) or ''}")[0],
    )


def _flashinfer(found: MachineFacts, packages: Packages) -> Iterator[CheckLine]:
    """flashinfer cannot be imported next to binaries of another version (its jit/env.py)."""
    main = packages.installed.get("flashinfer-python")
    if main is None or _is_set(found, "FLASHINFER_DISABLE_VERSION_CHECK"):
        return
    for name in _FLASHINFER_BINARIES:
        have = packages.installed.get(name)
        if have is None or have.partition("+")[0] == main.partition("+")[0]:
            continue
        fix, command = pip_install(found, f"{name}=={main}")
        if name != "flashinfer-cubin":  # from an index of its own, by CUDA version
            fix, command = f"install {name} {main}, or uninstall it", False
        yield CheckLine(
            "packages",
            CheckState.ERROR if found.nvidia is not None else CheckState.WARNING,
            f"{name} {have} next to flashinfer-python {main}",
            "flashinfer refuses to be imported next to binaries of another version",
            fix,
            command,
        )


def _mismatches(
    found: MachineFacts, runtime: Runtime, packages: Packages, told: set[str]
) -> Iterator[CheckLine]:
    wrong = [one for one in _compare(runtime, packages) if one.name not in told]
    watched = [one for one in wrong if one.name in _WATCHED]
    others = [one for one in wrong if one.name not in _WATCHED]
    if watched:
        fix, command = _install(found, runtime, watched)
        yield CheckLine(
            "packages",
            CheckState.WARNING,
            _listed(watched),
            f"SGLang {runtime.sglang} was built and tested with other versions",
            fix,
            command,
        )
    if others:
        fix, command = _install(found, runtime, others)
        yield CheckLine("packages", CheckState.NOTE, _listed(others), "", fix, command)


def _install(
    found: MachineFacts, runtime: Runtime, mismatches: list[_Mismatch]
) -> tuple[str, bool]:
    """A few by name; of many SGLang itself brings what it asks for."""
    if len(mismatches) > _SHOWN:
        return pip_install(found, f"sglang=={runtime.sglang}")
    return pip_install(found, *(one.requirement for one in mismatches))


def _compare(runtime: Runtime, packages: Packages) -> Iterator[_Mismatch]:
    """The requirements of the installed SGLang that its environment does not meet."""
    environment = {
        "python_version": ".".join(runtime.python_version.split(".")[:2]),
        "python_full_version": runtime.python_version,
    }
    seen: set[str] = set()
    for text in packages.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        name = canonicalize_name(requirement.name)
        # up to 0.5.2 what a GPU needs is an extra, `srt`, which `pip install sglang[all]` takes
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


def _listed(mismatches: list[_Mismatch]) -> str:
    shown = [str(one) for one in mismatches[:_SHOWN]]
    more = len(mismatches) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _summary(packages: Packages) -> str:
    names = ("torch", *_KERNELS, "flashinfer-python", "transformers")
    have = [f"{name} {packages.installed[name]}" for name in names if name in packages.installed]
    return ", ".join(have) or "none of its kernel packages is installed"


def _pin(packages: Packages, name: str) -> str | None:
    """The version specifier that SGLang asks for, from the first requirement of that name."""
    for text in packages.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
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
