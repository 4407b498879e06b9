"""Which interpreter has SGLang's load generator, where no engine is launched."""

from __future__ import annotations

import os

from speclaunch.cpu.environment import SGLANG_VERSION, CpuEngine
from speclaunch.cpu.manifest import is_installed
from speclaunch.errors import LaunchError
from speclaunch.facts.runtime import find_runtime
from speclaunch.home import speclaunch_home
from speclaunch.record import record


@record
class Interpreter:
    """A Python with SGLang, and the environment that it runs in."""

    python: str
    environment: dict[str, str]


def generator_interpreter(engine: str | None) -> Interpreter:
    """The one that a launch would take (`engine`: of that version), else the CPU engine's. Raises
    LaunchError."""
    try:
        runtime = find_runtime(None)
    except LaunchError as error:
        cpu = CpuEngine(speclaunch_home())
        installed = is_installed(cpu)
        if engine in (None, SGLANG_VERSION) and installed:
            return Interpreter(str(cpu.python), _of_cpu(cpu))
        other = "leave --engine out" if installed else "`speclaunch engine install cpu`"
        raise LaunchError(
            f"the load is made by SGLang's own generator, and {error}",
            help=f"activate an environment with sglang (VIRTUAL_ENV or PATH), or {other}; the "
            "server's own environment is not needed",
        ) from None
    if engine not in (None, runtime.sglang):
        raise LaunchError(
            f"SGLang {engine} was requested for the load generator, {runtime.interpreter} has "
            f"{runtime.sglang}",
            help="activate the environment with that version, or leave --engine out",
        )
    return Interpreter(str(runtime.interpreter), dict(os.environ))


def _of_cpu(cpu: CpuEngine) -> dict[str, str]:
    env = {**os.environ, **cpu.environment(os.environ)}
    if "HF_HUB_OFFLINE" not in os.environ:
        env.pop("HF_HUB_OFFLINE", None)  # the server's model may be one of the hub
    return env
