"""What others say of a rendered text: Kubernetes' own schemas, those of custom kinds, Compose's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

SCHEMAS = Path(__file__).parent / "schemas"
MINORS = ("1.31.0", "1.34.0", "1.37.0")
"""Versions of Kubernetes: the newest that kubernetes-validate knows, and two older ones."""
POD_TEMPLATE = "x-speclaunch-pod-template"
_CUSTOM = {
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "leaderworkerset-v1.json",
    ("workloads.x-k8s.io/v1alpha2", "RoleBasedGroup"): "rolebasedgroup-v1alpha2.json",
}


@cache
def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / name).read_text())
    return found


def objects(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def validate_kubernetes(text: str, version: str) -> None:
    """Raises for an object that this version of Kubernetes, or its own CRD, refuses; unknown
    fields are refused, too."""
    for one in objects(text):
        custom = _CUSTOM.get((one["apiVersion"], one["kind"]))
        if custom is None:
            kubernetes_validate.validate(one, version, strict=True)
            continue
        templates: list[Any] = []
        problems = list(_against(one, schema(custom), "", templates))
        assert not problems, problems
        assert templates
        for template in templates:
            wrapped = {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": "x"},
                "template": template,
            }
            kubernetes_validate.validate(wrapped, version, strict=True)


def validate_compose(text: str) -> None:
    (one,) = objects(text)
    jsonschema.Draft202012Validator(schema("compose-spec.json")).validate(one)


def _against(value: Any, wanted: dict[str, Any], path: str, templates: list[Any]) -> Iterator[str]:
    """What is wrong with a value by an OpenAPI schema as the API server reads it, strictly."""
    if wanted.get(POD_TEMPLATE):
        templates.append(value)
        return
    if wanted.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{path}: {value!r} is no number and no text"
        return
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    kind = wanted.get("type")
    if kind in kinds and (
        not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool))
    ):
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in wanted and value not in wanted["enum"]:
        yield f"{path}: {value!r} is none of {wanted['enum']}"
    if "minimum" in wanted and value < wanted["minimum"]:
        yield f"{path}: {value!r} is less than {wanted['minimum']}"
    if isinstance(value, dict):
        known = wanted.get("properties", {})
        free = wanted.get("x-kubernetes-preserve-unknown-fields") or path == ".metadata"
        more = wanted.get("additionalProperties")
        for name in wanted.get("required", ()):
            if name not in value:
                yield f"{path}.{name} is missing"
        for name, one in value.items():
            if name in known:
                yield from _against(one, known[name], f"{path}.{name}", templates)
            elif isinstance(more, dict):
                yield from _against(one, more, f"{path}.{name}", templates)
            elif not free and known:
                yield f"{path}.{name} is no field"
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _against(one, wanted.get("items", {}), f"{path}[{index}]", templates)
