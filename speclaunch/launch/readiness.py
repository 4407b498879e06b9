"""Waits until an engine is ready, and checks it, while somebody else looks after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from speclaunch.launch.address import Address
from speclaunch.launch.client import EngineClient
from speclaunch.launch.launch_thread import LaunchThread
from speclaunch.launch.verify import Verification, verify

if TYPE_CHECKING:
    from speclaunch.engine.command import RenderedArgs
    from speclaunch.recipe.schema import VerificationSection as Settings

_HEALTH_SECONDS = 0.2
"""How often a starting engine is asked."""


class Prober(LaunchThread):
    """Waits for the engine's health and checks it, off the main thread."""

    def __init__(
        self,
        address: Address,
        asked: RenderedArgs,
        settings: Settings | None,
        stranger: Callable[[], str | None],
    ) -> None:
        """Without `settings` nothing is checked: a rank that serves no requests answers `/health`
        once its part of the model is loaded, and nothing else (0.5.23 utils/common.py
        `launch_dummy_health_check_server`)."""
        super().__init__("the check of the engine", self._probe)
        self._address, self._asked, self._settings = address, asked, settings
        self._stop_asked = threading.Event()
        self.healthy = threading.Event()
        self.done = threading.Event()
        self.verification: Verification | None = None
        self.stranger: str | None = None
        """Who answers in the engine's place."""
        self._look = stranger

    def _probe(self) -> None:
        """Wait and check; the result is in `verification` once `done` is set."""
        with EngineClient(self._address) as client:
            while not client.healthy():
                if self._stop_asked.wait(_HEALTH_SECONDS):
                    return
            self.stranger = self._look()
            if self.stranger is not None:
                return
            self.healthy.set()
            if self._settings is not None and self._settings.enabled:
                self.verification = verify(client, self._asked, self._settings)
        self.done.set()

    def stop(self) -> None:
        """Wait no longer."""
        self._stop_asked.set()
