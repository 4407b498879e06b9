"""A deployment as text for other tools: one file a target, all behind `interface.Renderer`."""

from __future__ import annotations

from speclaunch.deploy.interface import Renderer
from speclaunch.deploy.shell import ShellRenderer
from speclaunch.deploy.slime import SlimeRenderer

RENDERERS: dict[str, type[Renderer]] = {
    renderer.target: renderer for renderer in (ShellRenderer, SlimeRenderer)
}
"""Every target of `speclaunch render --to`, by name."""
