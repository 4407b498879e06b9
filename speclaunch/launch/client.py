"""What we ask a running engine over HTTP."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from speclaunch.record import record

if TYPE_CHECKING:
    import httpx

HEALTH_SECONDS = 5.0
_OK, _NOT_FOUND = 200, 404


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


@record
class Generation:
    """One generation and the engine's own counters of it."""

    text: str
    tokens: int
    seconds: float
    verify_count: int | None
    """How often the target verified a draft; None when the engine did not speculate."""
    acceptance_length: float | None
    """Tokens per verification, 1.0 when nothing drafted was ever accepted."""


class EngineClient:
    """A client of one engine. Its methods raise httpx.HTTPError."""

    def __init__(self, address: Address) -> None:
        import httpx  # noqa: PLC0415 - loaded while the engine starts, not before it

        self._errors = httpx.TransportError
        headers = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}
        # We talk to the engine that we started, on this machine: its certificate is for the
        # name that its users call it by.
        verify = _no_check() if address.tls else True
        self._http: httpx.Client = httpx.Client(
            base_url=address.url,
            headers=headers,
            timeout=HEALTH_SECONDS,
            verify=verify,
            trust_env=False,  # no proxy between us and our own machine
        )

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def healthy(self) -> bool:
        """Whether `/health` answers 200: from then on the engine takes requests."""
        try:
            return self._http.get("/health").status_code == _OK
        except self._errors:
            return False

    def get(self, path: str, timeout: float = HEALTH_SECONDS) -> httpx.Response:
        """Ask for anything else; the answer whatever its status."""
        return self._http.get(path, timeout=timeout, follow_redirects=True)

    def post(self, path: str, body: dict[str, Any], timeout: float) -> httpx.Response:
        """Send a JSON document; the answer whatever its status."""
        return self._http.post(path, json=body, timeout=timeout)

    def server_info(self) -> dict[str, Any]:
        """The engine's effective arguments and internal state."""
        answer = self._http.get("/server_info", timeout=30)
        if answer.status_code == _NOT_FOUND:  # before 0.5.x's rename
            answer = self._http.get("/get_server_info", timeout=30)
        answer.raise_for_status()
        info: dict[str, Any] = answer.json()
        return info

    def generate(self, prompt: str | list[int], max_new_tokens: int, timeout: float) -> Generation:
        """Generate greedily; the prompt is text, or token ids for an engine without tokenizer."""
        body: dict[str, Any] = {
            "sampling_params": {
                "max_new_tokens": max_new_tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
            ("text" if isinstance(prompt, str) else "input_ids"): prompt,
        }
        answer = self._http.post("/generate", json=body, timeout=timeout)
        answer.raise_for_status()
        data = answer.json()
        meta = data["meta_info"]
        tokens = int(meta["completion_tokens"])
        count = meta.get("spec_verify_ct") or None
        length = meta.get("spec_accept_length")
        if length is None and count:  # older engines give the count only
            length = tokens / count
        return Generation(
            text=data.get("text") or "",
            tokens=tokens,
            seconds=answer.elapsed.total_seconds(),
            verify_count=count,
            acceptance_length=length,
        )


def _no_check() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
