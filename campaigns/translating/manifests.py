"""Which commands a manifest starts: read by plain PyYAML, by the documented rules of each tool.

Compose: https://docs.docker.com/reference/compose-file/interpolation/ (`${VAR:-default}`, `$$`) and
`command`/`entrypoint`, where a text is split as a shell splits words. Kubernetes:
https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container/
(`command` and `args` in a row, `$(VAR)` from `env`, `$$(VAR)` stays `$(VAR)`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Process:
    """One container's command, and the environment that its manifest gives it."""

    words: tuple[str, ...]
    env: Mapping[str, str]


def processes(kind: str, text: str) -> list[Process]:
    """The commands of a manifest; `kind` is compose or kubernetes."""
    documents = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    reader = _of_compose if kind == "compose" else _of_kubernetes
    return [process for document in documents for process in reader(document)]


_COMPOSE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<name>\w+)|\{(?P<braced>\w+)(?:(?P<how>:?[-?+])(?P<rest>[^}]*))?\})"
)


def interpolated(text: str, env: Mapping[str, str]) -> str:
    """A value of a Compose file after interpolation."""

    def put(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        value = env.get(found["name"] or found["braced"])
        how = found["how"] or ""
        unset = value is None or (how.startswith(":") and not value)
        if how.endswith("-"):
            return found["rest"] if unset else str(value)
        if how.endswith("+"):
            return "" if unset else found["rest"]
        return value or ""

    return _COMPOSE.sub(put, text)


def _of_compose(document: Mapping[str, Any]) -> Iterator[Process]:
    for service in (document.get("services") or {}).values():
        words = [*_listed(service.get("entrypoint")), *_listed(service.get("command"))]
        if words:
            yield Process(tuple(words), _environment(service.get("environment")))


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return shlex.split(interpolated(value, {}))
    return [interpolated(_text(item), {}) for item in value]


def _environment(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {k: interpolated(_text(v), {}) for k, v in value.items() if v is not None}
    pairs = (interpolated(_text(item), {}).partition("=") for item in value or ())
    return {name: given for name, equals, given in pairs if equals}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


_KUBERNETES = re.compile(r"\$\$|\$\((?P<name>[^()\s]+)\)")


def substituted(text: str, env: Mapping[str, str]) -> str:
    """A word of a container after Kubernetes put its variables in."""

    def put(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return env.get(found["name"], found[0])

    return _KUBERNETES.sub(put, text)


def _of_kubernetes(node: Any) -> Iterator[Process]:
    """Every `containers:` anywhere in a document."""
    if isinstance(node, list):
        for item in node:
            yield from _of_kubernetes(item)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key == "containers" and isinstance(value, list):
            for container in value:
                yield from _container(container)
        else:
            yield from _of_kubernetes(value)


def _container(container: Mapping[str, Any]) -> Iterator[Process]:
    env: dict[str, str] = {}
    for item in container.get("env") or ():
        if "value" in item:
            env[item["name"]] = substituted(str(item["value"]), env)
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if words:
        yield Process(tuple(substituted(str(word), env) for word in words), env)


_FENCE = re.compile(r"^```(?:bash|sh|shell|console)\n(.*?)^```$", re.M | re.S)


def shell_blocks(text: str) -> list[str]:
    """The shell blocks of a Markdown document."""
    return _FENCE.findall(text)
