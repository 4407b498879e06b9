"""What all targets with pods share: how their text is read back."""

from __future__ import annotations

import yaml

from speclaunch.deploy.interface import Renderer
from speclaunch.deploy.launching import launches_in
from speclaunch.deploy.volumes import RECIPE_FILE


class PodRenderer(Renderer):
    """A target that writes Kubernetes objects."""

    suffix = ".yaml"

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The words of each `speclaunch launch`."""
        return launches_in(text)

    def recipe_in(self, text: str) -> str | None:
        """The recipe that the text brings with it, in a ConfigMap."""
        for one in yaml.safe_load_all(text):
            found = (one.get("data") or {}).get(RECIPE_FILE)
            if found is not None:
                return str(found)
        return None
