"""The official schemas that `tests/deployments/targets` holds rendered texts against, as small as
they can be.

    python tools/deploy_schemas.py LWS_CHECKOUT RBG_CHECKOUT COMPOSE_SPEC_CHECKOUT

Each is a checkout of the project (or its bare repository) at the tag that SOURCES names. Of a
CustomResourceDefinition the schema of one version is kept, without descriptions; a pod template
in it, which is most of it, becomes a mark, because the schemas of Kubernetes itself judge that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "deployments" / "targets" / "schemas"
POD_TEMPLATE = "x-speclaunch-pod-template"
"""What a pod template is replaced by."""
SOURCES = {
    "leaderworkerset-v1.json": (
        "v0.9.0",
        "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
        "v1",
    ),
    "rolebasedgroup-v1alpha2.json": (
        "v0.8.0-alpha.5",
        "config/crd/bases/workloads.x-k8s.io_rolebasedgroups.yaml",
        "v1alpha2",
    ),
    "compose-spec.json": ("HEAD", "schema/compose-spec.json", None),
}


def main(checkouts: list[str]) -> None:
    for checkout, (name, (revision, path, version)) in zip(checkouts, SOURCES.items(), strict=True):
        shown = subprocess.run(
            ["git", "-C", checkout, "show", f"{revision}:{path}"], capture_output=True, check=True
        )
        if version is None:
            schema = json.loads(shown.stdout)
        else:
            crd = yaml.load(shown.stdout, Loader=yaml.CSafeLoader)
            (found,) = (one for one in crd["spec"]["versions"] if one["name"] == version)
            schema = smaller(found["schema"]["openAPIV3Schema"])
        (FOLDER / name).write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n")
        print(f"{name}: {(FOLDER / name).stat().st_size:,} bytes")


def smaller(schema: Any) -> Any:
    """Without descriptions, and with a mark for each pod template."""
    if isinstance(schema, list):
        return [smaller(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    spec = schema.get("properties", {}).get("spec")
    if isinstance(spec, dict) and "initContainers" in spec.get("properties", {}):
        return {"type": "object", POD_TEMPLATE: True}
    return {
        key: smaller(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str))
    }


if __name__ == "__main__":
    main(sys.argv[1:])
