"""Where an engine listens."""

from __future__ import annotations

from speclaunch.record import record


@record
class Address:
    """Where an engine listens, and how to be let in."""

    host: str
    port: int
    tls: bool = False
    api_key: str | None = None

    @property
    def url(self) -> str:
        """The base address as a client on this machine would use it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"
