"""Targets of `speclaunch render --to`."""

from __future__ import annotations

from speclaunch.deployments.targets.docker_compose import DockerComposeRenderer
from speclaunch.deployments.targets.interface import Renderer
from speclaunch.deployments.targets.kubernetes import (
    KubernetesRenderer,
    LeaderWorkerSetRenderer,
    RoleBasedGroupRenderer,
)
from speclaunch.deployments.targets.monitoring import (
    GrafanaRenderer,
    PrometheusRulesRenderer,
    PrometheusScrapeRenderer,
)
from speclaunch.deployments.targets.ray import RayRenderer
from speclaunch.deployments.targets.shell import ShellRenderer, SlimeRenderer
from speclaunch.deployments.targets.slurm import SlurmRenderer
from speclaunch.deployments.targets.srt_slurm import SrtSlurmRenderer

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
        PrometheusRulesRenderer,
        PrometheusScrapeRenderer,
        GrafanaRenderer,
    )
}
"""Renderer of every target, by name."""
