"""Manifests of cases: a text of tests/checks/rules/manifests, with what a case changes in it.

A change is a path and a value; None takes it away. A path begins with the name of an object or of
a service of Compose, and means its container from there on (`llama image`), its pod (`llama/pod
hostNetwork`), the labels of that (`llama/labels app`), its `llama/metadata`, or the object itself (`llama/object kind`); a
Service is `Service/NAME`. `PodMonitor` and `ServiceMonitor` add one with that `spec`. Of a LeaderWorkerSet that is its worker; `glm/leader` is the container of
its leader, `glm/leader-pod` the pod of that. A part that begins with `--` is an argument of the command; `+` is one
more item of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from tests.support import TESTS

MANIFESTS = TESTS / "checks" / "rules" / "manifests"
# PyYAML's own scanner takes ten times longer than libyaml's.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@cache
def _text(name: str) -> str:
    return (MANIFESTS / f"{name}.yaml").read_text()


def manifest(name: str, changes: Mapping[str, Any]) -> str:
    """The text of a manifest with changes."""
    if not changes:
        return _text(name)
    documents = [one for one in yaml.load_all(_text(name), LOADER) if one is not None]
    for path, value in changes.items():
        _change(documents, path.split(), value)
    documents = [one for one in documents if one]
    return yaml.dump_all(documents, Dumper=DUMPER, sort_keys=False, width=1000)


def _change(documents: list[Any], path: list[str], value: Any) -> None:
    if path[0] in ("PodMonitor", "ServiceMonitor"):
        metadata = {"name": documents[0]["metadata"]["name"]}
        documents.append({"kind": path[0], "metadata": metadata, "spec": value})
        return
    held = _start(documents, path[0])
    for step in path[1:-1]:
        held = held[int(step)] if isinstance(held, list) else held.setdefault(step, {})
    last = path[-1]
    if last == path[0]:
        held.clear()
    elif last.startswith("--"):
        _word(held["command"], last, value)
    elif last == "+":
        held.append(value)
    elif isinstance(held, list):
        held[int(last)] = value
    elif value is None:
        held.pop(last)
    else:
        held[last] = value


def _word(words: list[str], flag: str, value: Any) -> None:
    at = next((n for n, word in enumerate(words) if word.partition("=")[0] == flag), None)
    word = flag if value is True else f"{flag}={value}"
    if at is None:
        words.append(word)
    elif value is None:
        del words[at]
    else:
        words[at] = word


def _start(documents: list[Any], said: str) -> Any:
    kind, _, name = said.rpartition("/")
    if kind == "Service":
        return next(one for one in documents if one["kind"] == kind and _named(one, name))
    name, _, part = said.partition("/")
    if "services" in documents[0]:
        return documents[0]["services"][name]
    found = next(one for one in documents if one["kind"] != "Service" and _named(one, name))
    if part == "object":
        return found
    template = _template(found["spec"], part)
    if part.startswith("leader") or part == "worker":
        part = part.removeprefix("leader").removeprefix("worker").removeprefix("-")
    if part == "metadata":
        return template["metadata"]
    if part == "labels":
        return template["metadata"]["labels"]
    return template["spec"] if part == "pod" else template["spec"]["containers"][0]


def _template(spec: Any, part: str) -> Any:
    held = spec.get("leaderWorkerTemplate")
    if held is None:
        return spec["template"]
    return held["leaderTemplate" if part.startswith("leader") else "workerTemplate"]


def _named(document: Mapping[str, Any], name: str) -> bool:
    return bool(document["metadata"]["name"] == name)
