"""Responses of the endpoints that a probe may request, by release, and server shutdown.

Read from `entrypoints/http_server.py` of the releases (0.5.23: lines 715 to 800 and 2191) and
measured on the CPU engine (0.5.23):

- `/health` responds after 1.0 s when the server is idle or saturated.
- `/health` returns 503 after 20 s when the scheduler hangs.
- Before the warm-up ends the port is open, `/v1/models` returns 200 and `/health` returns 503.

After SIGTERM a server finishes every running request, without a time limit (`sigterm_watchdog`,
0.4.6 managers/tokenizer_manager.py:1084, 0.5.23 managers/tokenizer_manager.py:3508). Measured on
the CPU engine (0.5.23): 8 requests of 1,000 tokens take 132 s, while `/health` returns 503.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from speclaunch.core import lazy
from speclaunch.engine.plan.settings import Settings

if TYPE_CHECKING:
    from speclaunch.engine.plan.settings import Settings

GENERATES = ">=0.5.1"
"""Releases in which `/health` generates a token like `/health_generate`. Earlier releases return
200 immediately (0.4.10 entrypoints/http_server.py)."""
_SWITCH = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
_SWITCHED = ">=0.5.6"
_BYPASS = "SGLANG_DIAG_BYPASS_HEALTH_GENERATE"
PATIENCE = "SGLANG_HEALTH_CHECK_TIMEOUT"
USUAL_PATIENCE = 20
"""Seconds until 503 (`HEALTH_CHECK_TIMEOUT`, 0.4.6 to 0.5.23)."""
LEAST_SECONDS = 1
"""Seconds that a generating endpoint sleeps before it first checks for an answer."""
_GENERATE = "/health_generate"
_HEALTH = "/health"

_READY = ">=0.5.20"
"""Releases with `/ready`, which needs no key, and a `/ping` that checks the server's status."""
_ALWAYS = ">=0.4.6"
_SINCE: Mapping[str, str] = {
    "/health": _ALWAYS,
    "/health_generate": _ALWAYS,
    "/ping": _ALWAYS,
    "/v1/models": _ALWAYS,
    "/get_model_info": _ALWAYS,
    "/get_server_info": _ALWAYS,
    "/flush_cache": _ALWAYS,
    "/get_load": ">=0.4.7,<0.5.21",
    "/v1/loads": ">=0.5.8",
    "/get_weight_version": ">=0.5.1,<0.5.21",
    "/model_info": ">=0.5.6",
    "/server_info": ">=0.5.6",
    "/weight_version": ">=0.5.6,<0.5.21",
    "/": ">=0.5.10",
    "/ready": _READY,
    "/metrics": _ALWAYS,
    "/docs": _ALWAYS,
    "/redoc": _ALWAYS,
    "/openapi.json": _ALWAYS,
}
"""Paths that respond to GET and may be probed, with the releases that have them (`@app.get`)."""
_ELSEWHERE = lazy(r"/(?:healthz|livez|readyz|live|readiness|liveness|startup|v1/health|v1/ready)/?")
"""Health paths of other servers, which no release of the engine has."""
_NO_KEY = lazy(r"/(?:health|metrics)")
"""Path prefixes that the middleware accepts without a key (0.4.6 utils.py `add_api_key_middleware`,
0.5.23 utils/auth.py:99)."""
_WORKER = {"/health": _ALWAYS, "/health_generate": _ALWAYS, "/ping": ">=0.5.4"}
"""Paths that ranks other than the first serve (`launch_dummy_health_check_server`, 0.5.23
utils/common.py:3624)."""


def patience(settings: Settings) -> int:
    """Return the seconds that the engine waits for its scheduler before it returns 503. Raises
    UnknownValueError."""
    text = settings.env(PATIENCE)
    return int(text) if text is not None and text.strip().isdecimal() else USUAL_PATIENCE


def generates(settings: Settings, path: str | None) -> bool:
    """True if a GET of the path generates a token. False without a path. Raises
    UnknownValueError."""
    if path not in (_HEALTH, _GENERATE):
        return False
    if settings.env_flag(_BYPASS):
        return False
    if path == _GENERATE:
        return True
    if not settings.in_versions(GENERATES):
        return False
    return not settings.in_versions(_SWITCHED) or settings.env_flag(_SWITCH, default=True)


def waits_for_warmup(settings: Settings, path: str | None) -> bool:
    """True if the path returns 200 only after the server has generated something. False without a
    path. Raises UnknownValueError."""
    if path == "/ready":
        return True
    if path == "/ping":
        return settings.in_versions(_READY)
    if path == _HEALTH:
        return settings.in_versions(GENERATES)
    return path == _GENERATE


def exists(settings: Settings, path: str) -> bool | None:
    """True if the server responds to a GET of the path; None if the path is unknown."""
    if _ELSEWHERE.fullmatch(path):
        return False
    since = _SINCE.get(path)
    if since is None:
        return None
    return settings.in_versions(since) and (path != "/metrics" or _has_metrics(settings))


def exists_on_worker(settings: Settings, path: str) -> bool:
    """True if ranks other than the first respond to the path. Raises UnknownValueError."""
    since = _WORKER.get(path)
    if since is None:
        return path == "/metrics" and _has_metrics(settings)
    return settings.in_versions(since)


def needs_key(settings: Settings, path: str) -> bool:
    """True if the path returns 401 when the server has an `api_key` and the request has none.
    Raises UnknownValueError."""
    if not settings.is_set("api_key") or _NO_KEY.match(path):
        return False
    return path != "/ready" or not settings.in_versions(_READY)


def _has_metrics(settings: Settings) -> bool:
    return bool(settings.value("enable_metrics"))


_LOOKS = 5
"""Seconds between two checks for the signal."""
_SCHEDULERS = 15
"""Seconds for the schedulers to release their resources (`_SCHEDULER_EXIT_TIMEOUT_SECS`, 0.5.23
managers/tokenizer_manager.py:456)."""
_WAITS = ">=0.5.20"


def least_seconds(settings: Settings) -> int:
    """Return the maximum duration of a shutdown without requests, in seconds."""
    return _LOOKS + (_SCHEDULERS if settings.in_versions(_WAITS) else 0)
