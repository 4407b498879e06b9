"""Programs that the engine compiles with when it starts."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.checks.engine import pip_install
from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Packages, Surroundings, Tools
from speclaunch.facts.runtime import Runtime


def check(found: Surroundings) -> Iterator[Line]:
    """A C++ compiler and ninja, which NGRAM needs; nvcc, which kernels are compiled with."""
    tools = found.tools
    if not isinstance(tools, Tools):
        return
    target = found.target
    if target is not None and target.algorithm == "NGRAM" and not target.compiled:
        yield from _for_ngram(found, tools)
    if found.nvidia is not None and (target is None or not target.cpu):
        if tools.nvcc is not None:
            yield Line("nvcc", State.OK, str(tools.nvcc))
        elif isinstance(found.runtime, Runtime):
            yield Line(
                "nvcc",
                State.NOTE,
                "not found in CUDA_HOME, on PATH or in /usr/local/cuda",
                "kernels that no package brings ready-made are compiled with it at the start",
                "install the CUDA toolkit of torch's CUDA version, or set CUDA_HOME",
            )


def _for_ngram(found: Surroundings, tools: Tools) -> Iterator[Line]:
    """SGLang compiles the corpus of NGRAM at its first start (cpp_ngram, from 0.5.4 on)."""
    if tools.compiler is None:
        yield Line(
            "compiler",
            State.WARNING,
            "no C++ compiler is on PATH",
            "SGLang compiles the corpus of NGRAM with it at the first start",
            "install g++ (Debian, Ubuntu: apt-get install g++)",
        )
    else:
        yield Line("compiler", State.OK, str(tools.compiler))
    packages = found.packages
    if isinstance(packages, Packages) and not packages.ninja:
        fix, command = pip_install(found, "ninja")
        yield Line(
            "compiler",
            State.WARNING,
            "ninja is neither on PATH nor next to the engine's Python",
            "SGLang compiles the corpus of NGRAM with it at the first start",
            fix,
            command,
        )
