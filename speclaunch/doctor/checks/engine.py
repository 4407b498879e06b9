"""speclaunch itself, the engine with its SGLang, and what it compiles with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from speclaunch.doctor.bounded_tasks import NoAnswer
from speclaunch.doctor.check_line import CheckLine, CheckState
from speclaunch.doctor.machine_facts import MachineFacts, Target, Tools
from speclaunch.engine.catalogue import UnknownVersion, held_versions, resolve_version
from speclaunch.engine.versions import precedes
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.packages import Packages
from speclaunch.facts.runtime import Runtime


def check_python(found: MachineFacts) -> Iterator[CheckLine]:
    """One line: which speclaunch, on which Python, with which home."""
    own = found.own
    yield CheckLine(
        "speclaunch",
        CheckState.OK,
        f"{own.version} on Python {own.python} ({own.executable}), home {own.home}",
    )


_INSTALL_CPU = "speclaunch engine install cpu"


def check_engine(found: MachineFacts) -> Iterator[CheckLine]:
    """The engine that a launch would start, and the CPU engine."""
    target = found.target
    if target is None or not target.cpu:
        yield from _engine(found, target)
    yield from _cpu_engine(found, target)


def pip_install(found: MachineFacts, *requirements: str) -> tuple[str, bool]:
    """How to install something next to the engine: a fix, and that it is a command."""
    runtime = found.runtime
    if not isinstance(runtime, Runtime):
        return f"install {', '.join(requirements)} next to the engine", False
    python = str(runtime.interpreter)
    if isinstance(found.packages, Packages) and not found.packages.has_pip:
        words = ["uv", "pip", "install", "--python", python, *requirements]
    else:
        words = [python, "-m", "pip", "install", *requirements]
    return shlex.join(words), True


def _engine(found: MachineFacts, target: Target | None) -> Iterator[CheckLine]:
    runtime = found.runtime
    if isinstance(runtime, NoAnswer):
        said = f"cannot query its interpreter: {runtime.why}"
        yield CheckLine(
            "engine", CheckState.UNKNOWN, said, fix="name another: engine.python=/path/to/python"
        )
        return
    if isinstance(runtime, UnknownFact):
        state = CheckState.NOTE if target is None else CheckState.ERROR
        yield CheckLine("engine", state, runtime.why, fix=runtime.help)
        return
    where = f"SGLang {runtime.sglang}, Python {runtime.python_version} ({runtime.interpreter})"
    wanted = _wanted(runtime.sglang or "", target)
    if wanted is None:
        yield _known(runtime, where)
        return
    state, why, requirement = wanted
    fix, command = pip_install(found, requirement)
    yield CheckLine("engine", state, where, why, fix, command)


def _wanted(installed: str, target: Target | None) -> tuple[CheckState, str, str] | None:
    """What the recipe or the command line asks for instead: how bad, why, what to install."""
    if target is None:
        return None
    if target.asked and installed not in target.asked:
        why = f"--engine {','.join(target.asked)} was requested: a launch here would refuse it"
        return CheckState.WARNING, why, f"sglang=={target.asked[0]}"
    if target.fits:
        return None
    if target.pinned is not None:
        return CheckState.ERROR, f"{target.name} is for {target.pinned}", f"sglang=={target.pinned}"
    return CheckState.ERROR, f"{target.name} needs {target.needs}", f"sglang{target.needs}"


def _known(runtime: Runtime, where: str) -> CheckLine:
    newest = held_versions()[-1]
    try:
        resolved = resolve_version(runtime.sglang or "")
    except UnknownVersion as error:
        return CheckLine(
            "engine",
            CheckState.WARNING,
            where,
            f"{error}: its arguments cannot be checked",
            "speclaunch engine catalogue add installed --python "
            + shlex.quote(str(runtime.interpreter)),
            command=True,
        )
    if not resolved.exact:
        return CheckLine(
            "engine",
            CheckState.WARNING if precedes(resolved.asked, held_versions()[0]) else CheckState.NOTE,
            where,
            resolved.note or "",
            "speclaunch engine catalogue add installed --python "
            + shlex.quote(str(runtime.interpreter)),
            command=True,
        )
    why = "" if resolved.held == newest else f"the newest known version is {newest}"
    return CheckLine("engine", CheckState.OK, where, why)


def _cpu_engine(found: MachineFacts, target: Target | None) -> Iterator[CheckLine]:
    engine = found.cpu_engine
    needed = target is not None and target.cpu
    if isinstance(engine, UnknownFact):
        yield CheckLine("cpu-engine", CheckState.UNKNOWN, f"unknown: {engine.why}")
    elif engine.installed:
        found_here = f"SGLang {engine.version} for the CPU ({engine.python})"
        yield CheckLine("cpu-engine", CheckState.OK, found_here)
    elif engine.begun:
        state = CheckState.ERROR if needed else CheckState.WARNING
        why = "the installation is incomplete, or belongs to another speclaunch"
        yield CheckLine("cpu-engine", state, "not complete", why, _INSTALL_CPU, command=True)
    elif needed:
        why = f"{target.name if target else 'the recipe'} runs on it"
        yield CheckLine(
            "cpu-engine", CheckState.ERROR, "not installed", why, _INSTALL_CPU, command=True
        )
    else:
        why = "the real SGLang without a GPU, for trials (1.6 GB)"
        yield CheckLine(
            "cpu-engine", CheckState.NOTE, "not installed", why, _INSTALL_CPU, command=True
        )


def check_compilers(found: MachineFacts) -> Iterator[CheckLine]:
    """A C++ compiler and ninja, which NGRAM needs; nvcc, which kernels are compiled with."""
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
                "kernels without a prebuilt package are compiled with it at the start",
                "install the CUDA toolkit of torch's CUDA version, or set CUDA_HOME",
            )


def _for_ngram(found: MachineFacts, tools: Tools) -> Iterator[CheckLine]:
    """SGLang compiles the corpus of NGRAM at its first start (cpp_ngram, from 0.5.4 on)."""
    if tools.compiler is None:
        yield CheckLine(
            "compiler",
            CheckState.WARNING,
            "no C++ compiler on PATH",
            "SGLang compiles the NGRAM corpus with it at the first start",
            "install g++ (Debian, Ubuntu: apt-get install g++)",
        )
    else:
        yield CheckLine("compiler", CheckState.OK, str(tools.compiler))
    packages = found.packages
    if isinstance(packages, Packages) and not packages.ninja:
        fix, command = pip_install(found, "ninja")
        yield CheckLine(
            "compiler",
            CheckState.WARNING,
            "ninja is neither on PATH nor next to the engine's Python",
            "SGLang compiles the NGRAM corpus with it at the first start",
            fix,
            command,
        )
