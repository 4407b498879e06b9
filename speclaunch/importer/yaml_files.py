"""YAML that may hold server commands: which of its readers a document is for."""

from __future__ import annotations

import yaml

from speclaunch.importer import (
    compose_files,
    containers,
    nodes,
    sglang_yaml,
    srt_slurm,
    task_files,
)
from speclaunch.importer.interface import Reading
from speclaunch.importer.source_text import Document


def read_yaml_document(document: Document) -> Reading:
    """The servers in a document; see `files.read_yaml`."""
    roots = nodes.load(document)
    if not roots:
        return Reading()
    if any(_is_object(root) for root in roots):
        return containers.read_kubernetes(roots, document)
    if isinstance(nodes.entries(roots[0]).get("services"), yaml.MappingNode):
        return compose_files.read_compose(roots[0], document)
    if any(srt_slurm.looks_like(root) for root in roots):
        return srt_slurm.read_recipes(roots, document)
    if len(roots) == 1 and not _is_task(roots[0]) and sglang_yaml.looks_like(roots[0]):
        return sglang_yaml.read_root(roots[0], document)
    return task_files.read_tasks(roots, document)


def _is_object(root: yaml.Node) -> bool:
    keys = nodes.entries(root)
    return "kind" in keys and ("apiVersion" in keys or "spec" in keys or "items" in keys)


def _is_task(root: yaml.Node) -> bool:
    """Whether something is run by it: SGLang has arguments called `model`, `port`, `env` alike."""
    return bool(nodes.entries(root).keys() & {"commands", "run", "script", "jobs"})
