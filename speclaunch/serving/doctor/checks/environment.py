"""Checks of environment variables, the proxy, running engines and the port."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Mapping

from speclaunch.core import HIDDEN, is_secret_variable, redact
from speclaunch.engine import (
    ENGINE_VARIABLES,
    Catalogue,
    Runtime,
    UnknownFact,
    UnknownVersion,
    dead_variable,
    held_versions,
    nearest,
    resolve_version,
)
from speclaunch.engine import load as load_catalogue
from speclaunch.serving.doctor.facts import CheckLine, CheckState, MachineFacts, Port
from speclaunch.serving.doctor.machine import Custody, EngineTree, engines, may_end

_OTHERS = (
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE",
    "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS", "LD_PRELOAD", "PYTHONPATH",
)  # fmt: skip
_FAMILIES = ("NCCL_", "FLASHINFER_")
_SHOWN_CHARACTERS = 60
_SLOW = "CUDA_LAUNCH_BLOCKING"


def check_variables(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield lines about the variables that are set, including those that the engine ignores.

    With a recipe, the rules check the engine's own variables (SPL007, SPL008).
    """
    own = found.target.own_variables if found.target is not None else frozenset()
    families = (*ENGINE_VARIABLES, *_FAMILIES)
    known = (name for name in sorted(found.env) if name in _OTHERS or name.startswith(families))
    shown = [name for name in known if name not in own]
    wrong: list[CheckLine] = []
    if found.target is None:
        catalogue = _catalogue(found)
        wrong = [
            line
            for name in shown
            if name.startswith(ENGINE_VARIABLES) and (line := _engine_variable(name, catalogue))
        ]
    yield from wrong
    if found.env.get(_SLOW, "") not in ("", "0"):
        why = "each kernel launch blocks, so the engine is much slower"
        text = _assignment(_SLOW, found.env[_SLOW])
        yield CheckLine("variables", CheckState.WARNING, text, why, f"unset {_SLOW}", command=True)
    if shown:
        listed = ", ".join(_assignment(name, found.env[name]) for name in shown)
        yield CheckLine("variables", CheckState.NOTE if not wrong else CheckState.OK, listed)
    else:
        yield CheckLine("variables", CheckState.OK, "no variables are set that affect the engine")


def _assignment(name: str, value: str) -> str:
    if is_secret_variable(name):
        return f"{name}={HIDDEN}"
    value = redact(value)
    return f"{name}={value[:_SHOWN_CHARACTERS]}{'…' * (len(value) > _SHOWN_CHARACTERS)}"


def _engine_variable(name: str, catalogue: Catalogue) -> CheckLine | None:
    version = catalogue.version
    dead = dead_variable(name, version)
    declared = catalogue.variables.get(name)
    if dead is not None or (declared is not None and not declared.read):
        why = (
            dead.afterwards if dead is not None else "this release declares it but does not read it"
        )
        text = f"{name} has no effect in SGLang {version}"
        return CheckLine("variables", CheckState.WARNING, text, why, f"unset {name}", command=True)
    if declared is not None:
        if not declared.deprecated:
            return None
        fix = f"use {declared.replacement}" if declared.replacement else None
        text = f"{name} is deprecated in SGLang {version}"
        return CheckLine("variables", CheckState.NOTE, text, "", fix)
    near = nearest(name, catalogue.variables, 1)
    return CheckLine(
        "variables",
        CheckState.WARNING,
        f"SGLang {version} has no variable {name}",
        "it is silently ignored",
        f"did you mean {near[0]}?" if near else f"unset {name}",
        command=not near,
    )


def _catalogue(found: MachineFacts) -> Catalogue:
    runtime = found.runtime
    if isinstance(runtime, Runtime) and runtime.sglang:
        try:
            return load_catalogue(resolve_version(runtime.sglang).held)
        except UnknownVersion:
            pass
    return load_catalogue(held_versions()[-1])


_ANY = frozenset({"", "0.0.0.0", "::"})  # noqa: S104
_LOOPBACK = "127.0.0.1"


def check_proxy(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield a line about the proxy that the environment sets; nothing without a proxy.

    A ready engine sends itself a first request over HTTP, which uses the proxy (http_server.py,
    `requests.get`; sglang#9814, sglang#9155).
    """
    proxy = next((name for name in _names("http_proxy", "all_proxy") if found.env.get(name)), None)
    if proxy is None:
        return
    host = found.port.host if isinstance(found.port, Port) else _LOOPBACK
    # up to 0.5.9 a server on 0.0.0.0 requests that address itself, later 127.0.0.1
    hosts = [_LOOPBACK, host] if host in _ANY else [host]
    missing = [name for name in dict.fromkeys(hosts) if name and not _is_direct(name, found.env)]
    if not missing:
        text = f"{proxy} is set, but no_proxy excludes {', '.join(hosts)}"
        yield CheckLine("proxy", CheckState.OK, text)
        return
    everything = ",".join([*_listed(found.env), *missing])
    yield CheckLine(
        "proxy",
        CheckState.WARNING,
        f"{proxy} is set, and no_proxy lacks {', '.join(missing)}",
        "the engine would send its warm-up request to the proxy, and the start would fail",
        f"export no_proxy={shlex.quote(everything)} NO_PROXY={shlex.quote(everything)}",
        command=True,
    )


def _listed(env: Mapping[str, str]) -> list[str]:
    text = next((env[name] for name in _names("no_proxy") if env.get(name)), "")
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _is_direct(host: str, env: Mapping[str, str]) -> bool:
    entries = _listed(env)
    return "*" in entries or any(
        host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}") or _within(host, entry)
        for entry in entries
    )


def _within(host: str, entry: str) -> bool:
    """True if the host is in the network `entry` (such as `127.0.0.0/8`). The engine's HTTP library
    accepts networks in `NO_PROXY`."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _names(*names: str) -> list[str]:
    return [variant for name in names for variant in (name, name.upper())]


def check_engines(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield one line per running engine, or one line if none is running."""
    if isinstance(found.processes, UnknownFact):
        yield CheckLine("engines", CheckState.UNKNOWN, f"unknown: {found.processes.why}")
        return
    trees = engines(found.processes)
    if not trees:
        yield CheckLine("engines", CheckState.OK, "none running")
    for tree in trees:
        yield _line(tree, found.user)


def _line(tree: EngineTree, user: str) -> CheckLine:
    text = _what(tree, user)
    match tree.custody:
        case Custody.SPECLAUNCH:
            text += f", run by speclaunch (process {tree.keeper})"
            return CheckLine("engines", CheckState.NOTE, text)
        case Custody.PARENT:
            text += f", started by process {tree.keeper}"
            return CheckLine("engines", CheckState.NOTE, text)
        case Custody.SERVICE:
            why = "its parent process has exited: the engine is a service, or was forgotten"
            return CheckLine("engines", CheckState.NOTE, text, why, _end(tree, user, "if unused: "))
        case Custody.ZOMBIE:
            why = f"it has exited; its parent, process {tree.keeper}, has not reaped it"
            fix = f"end process {tree.keeper}, unless it is needed"
            if tree.keeper is not None and tree.keeper <= 1:  # may not reap in a container
                fix = "it holds no resources; docker run --init reaps such processes"
            return CheckLine("engines", CheckState.NOTE, f"{text}, a zombie", why, fix)
        case Custody.LEFT_OVER:
            mine = all(may_end(member, user) for member in tree.members)
            return CheckLine(
                "engines",
                CheckState.WARNING,
                f"{text}, left over",
                "its parent has exited, but it still holds its memory and its port",
                _end(tree, user, ""),
                command=mine,
            )


def _what(tree: EngineTree, user: str) -> str:
    pids = [str(member.pid) for member in tree.members]
    text = f"process{'es' * (len(pids) > 1)} {', '.join(pids)}"
    if tree.root.user not in ("", user):
        text += f" of {tree.root.user}"
    if tree.root.argv[0:1] and tree.root.argv[0].startswith("sglang::"):
        text += f" ({tree.root.argv[0].split()[0]})"
    if tree.port is not None:
        text += f", serving on port {tree.port}"
    if tree.root.age_seconds is not None:
        text += f", for {_age(tree.root.age_seconds)}"
    return text


def _end(tree: EngineTree, user: str, when: str) -> str:
    if not all(may_end(member, user) for member in tree.members):
        return f"{when}ask {tree.root.user or 'its owner'} to end it"
    pids = [tree.root.pid] if tree.custody is Custody.SERVICE else [m.pid for m in tree.members]
    return f"{when}kill {' '.join(str(pid) for pid in pids)}"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def check_port(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield one line that states whether the port is free, or why it cannot be used."""
    port = found.port
    if isinstance(port, UnknownFact):
        yield CheckLine("port", CheckState.UNKNOWN, f"unknown: {port.why}")
        return
    where = f"{port.host}:{port.number}"
    if port.refused is None:
        yield CheckLine("port", CheckState.OK, f"{where} is free")
        return
    state, why = CheckState.NOTE, "the engine's default port"
    if found.target is not None:
        state = CheckState.ERROR
        why = "the engine would load everything, and then hang without listening"
    yield CheckLine("port", state, port.refused, why, *_fix(found, port))


def _fix(found: MachineFacts, port: Port) -> tuple[str, bool]:
    if port.holder is not None and not isinstance(found.processes, UnknownFact):
        for tree in engines(found.processes):
            pids = [member.pid for member in tree.members]
            if port.holder not in pids or not all(may_end(m, found.user) for m in tree.members):
                continue
            if tree.custody is Custody.LEFT_OVER:
                return f"kill {' '.join(map(str, pids))}", True
    if port.free is None:
        return "choose another address: args.host=…, args.port=…", False
    taken = "; or stop the process that holds it" if "in use" in (port.refused or "") else ""
    return f"choose another port: args.port={port.free}{taken}", False
