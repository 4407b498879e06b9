"""Proxies that the engine's own first request would go through."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Mapping

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Port, Surroundings

_ANY = frozenset({"", "0.0.0.0", "::"})  # noqa: S104
_LOOPBACK = "127.0.0.1"


def check(found: Surroundings) -> Iterator[Line]:
    """Nothing where there is no proxy.

    An engine that is ready asks itself for a first answer over HTTP, and that request heeds the
    proxy (http_server.py, `requests.get`; sglang#9814, sglang#9155).
    """
    proxy = next((name for name in _names("http_proxy", "all_proxy") if found.env.get(name)), None)
    if proxy is None:
        return
    host = found.port.host if isinstance(found.port, Port) else _LOOPBACK
    # up to 0.5.9 a server on 0.0.0.0 asks that address itself, later 127.0.0.1
    asked = [_LOOPBACK, host] if host in _ANY else [host]
    missing = [name for name in dict.fromkeys(asked) if name and not _is_direct(name, found.env)]
    if not missing:
        yield Line("proxy", State.OK, f"{proxy} is set, and {', '.join(asked)} goes past it")
        return
    everything = ",".join([*_listed(found.env), *missing])
    yield Line(
        "proxy",
        State.WARNING,
        f"{proxy} is set, and {', '.join(missing)} is not in no_proxy",
        "the engine's own first request would go to the proxy, and the start fails at the warm-up",
        f"export no_proxy={shlex.quote(everything)} NO_PROXY={shlex.quote(everything)}",
        command=True,
    )


def _listed(env: Mapping[str, str]) -> list[str]:
    said = next((env[name] for name in _names("no_proxy") if env.get(name)), "")
    return [entry.strip() for entry in said.split(",") if entry.strip()]


def _is_direct(host: str, env: Mapping[str, str]) -> bool:
    entries = _listed(env)
    return "*" in entries or any(
        host == entry.lstrip(".") or host.endswith(f".{entry.lstrip('.')}") or _within(host, entry)
        for entry in entries
    )


def _within(host: str, entry: str) -> bool:
    """Networks (`127.0.0.0/8`), which the engine's HTTP library understands."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _names(*names: str) -> list[str]:
    return [spelled for name in names for spelled in (name, name.upper())]
