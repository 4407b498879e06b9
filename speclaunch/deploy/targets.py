"""The targets of `speclaunch render --to`."""

from __future__ import annotations

from speclaunch.deploy.docker_compose import DockerComposeRenderer
from speclaunch.deploy.interface import Renderer
from speclaunch.deploy.kubernetes import (
    KubernetesRenderer,
    LeaderWorkerSetRenderer,
    RoleBasedGroupRenderer,
)
from speclaunch.deploy.ray import RayRenderer
from speclaunch.deploy.shell import ShellRenderer, SlimeRenderer
from speclaunch.deploy.slurm import SlurmRenderer
from speclaunch.deploy.srt_slurm import SrtSlurmRenderer

RENDERERS: dict[str, type[Renderer]] = {
    renderer.target: renderer
    for renderer in (
        ShellRenderer,
        SlimeRenderer,
        DockerComposeRenderer,
        KubernetesRenderer,
        LeaderWorkerSetRenderer,
        RoleBasedGroupRenderer,
        SlurmRenderer,
        SrtSlurmRenderer,
        RayRenderer,
    )
}
"""The renderer of every target, by name."""
