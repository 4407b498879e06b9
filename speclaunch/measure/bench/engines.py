"""Engines of a comparison: launched in separate processes, or servers that are already running.

A launched engine has a separate speclaunch process, with checks, diagnosis and a clean stop; its
output goes to a log. The kernel ends the launch when this process ends for any reason
(PR_SET_PDEATHSIG), and the launch's guard ends the engine.

A running server is only queried, never started, paused or stopped. Its properties (version,
speculation) come from its `/server_info`. Its API key is read from the environment, so no process
list or file shows it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import psutil
from msgspec import Struct

from speclaunch.core import (
    COMMAND_LINE,
    HttpError,
    InputError,
    LaunchError,
    Place,
    UnboundedError,
    beating,
    children,
    duration,
)
from speclaunch.engine import Address
from speclaunch.measure.bench.measurement import ExpectedSide
from speclaunch.serving import (
    EngineClient,
    EngineError,
    EngineRefusalError,
    LaunchState,
    Run,
    reread_run,
    running_launches,
)

_POLL_SECONDS = 0.1
_END_SECONDS = 90.0
_TAIL = 30
_DYING_SECONDS = 10.0
"""Maximum seconds between an engine's broken connection and its speclaunch process's exit."""


class EngineOrder(Struct, frozen=True):
    """An engine to measure.

    `words`: arguments of `speclaunch launch` (recipe, overrides, options). `url`: address of a
    server that is already running; None to launch one. `key`: API key of the server.
    """

    name: str
    words: tuple[str, ...]
    port: int
    url: str | None = None
    key: str | None = None


def next_log(folder: Path) -> Path:
    """Return the log path of the next engine start; each start has its own file."""
    return folder / f"engine-{len(list(folder.glob('engine-*.log'))) + 1}.log"


class MeasuredEngine:
    """An engine launched for a measurement."""

    def __init__(self, order: EngineOrder, log: Path) -> None:
        """Start the engine. `log` receives the output of its speclaunch process."""
        self.order = order
        self.log = log
        self._run: Run | None = None
        self._paused: list[psutil.Process] = []
        with log.open("wb") as file:
            self._process = children.start(
                children.bound(children.own_command("launch", *order.words)),
                cwd=Path.cwd(),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.order.port}"

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.order.port, tls=False, api_key=self.order.key or None)

    def wait(self, seconds: float, say: Callable[[str], None] | None = None) -> float:
        """Wait up to `seconds` until the engine is verified; return the elapsed time.

        `say` receives periodic progress messages. Raises LaunchError.
        """
        if say is not None:
            with beating(say, lambda waited: f"{self.order.name}: starting for {duration(waited)}"):
                return self.wait(seconds)
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self._process.poll() is not None:
                raise LaunchError(
                    f"{self.order.name} did not start", help=f"see {self.log}: {self._words()}"
                )
            self._run = self._run or self._found()
            if self._run is not None and reread_run(self._run).state is LaunchState.SERVING:
                return time.monotonic() - began
            time.sleep(_POLL_SECONDS)
        message = f"{self.order.name} did not serve within {seconds:.0f} s"
        raise LaunchError(message, help=f"see {self.log}")

    def _attempts(self) -> Sequence[Mapping[str, Any]]:
        return reread_run(self._run).attempts if self._run is not None else []

    def _found(self) -> Run | None:
        for holder in running_launches():
            if holder.pid == self._process.pid:
                return reread_run(Run(Path(holder.run), {}, holder))
        return None

    @property
    def attempts(self) -> int:
        """Number of engine starts; more than 1 after a crash or a recovery step."""
        return len(self._attempts())

    @property
    def pid(self) -> int | None:
        """Process ID of the latest engine start; None if unknown."""
        attempts = self._attempts()
        found = attempts[-1].get("pid") if attempts else None
        return found if isinstance(found, int) else None

    @property
    def changes(self) -> dict[str, object]:
        """Arguments that recovery changed before the engine was ready."""
        attempts = self._attempts()
        return dict(attempts[-1].get("changes") or {}) if attempts else {}

    def is_gone(self, seconds: float = _DYING_SECONDS) -> bool:
        """True if the engine's speclaunch process has ended, or ends within `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def pause(self) -> None:
        """Pause the engine's processes, because an idle engine slows the other."""
        pid = self.pid
        if pid is None or self._paused:
            return
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(pid)
            self._paused = [parent, *parent.children(recursive=True)]
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._paused = []

    def _signal(self, number: int) -> None:
        for process in self._paused:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def stop(self) -> None:
        """Stop the engine and wait until all its processes have ended; safe to repeat."""
        self.resume()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except KeyboardInterrupt:  # already stopping; a second Ctrl-C waits less
                self._wait_or_kill()
                raise
            except subprocess.TimeoutExpired:
                self._wait_or_kill(0)

    def _wait_or_kill(self, seconds: float = _END_SECONDS) -> None:
        try:
            self._process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()  # its guard stops the engine
            self._process.wait()

    def _words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            errors = [line for line in lines[-_TAIL:] if line.startswith(("error", "✗"))]
            return (errors or lines or [""])[-1]
        return ""


def end_on_signals() -> None:
    """Make SIGTERM and SIGINT end this process and its engines, as Ctrl-C does.

    Also works in a background process that a shell started with SIGINT ignored.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


KEY, KEY_AGAINST = "SPECLAUNCH_API_KEY", "SPECLAUNCH_API_KEY_AGAINST"
"""Variables with the API keys of `--url` and, if different, of `--against url=`."""
_HELP_KEY = f"set the key in the environment: {KEY}=…"
SIMULATED = ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")
"""Variables that simulate acceptance; older releases read the name without the prefix.

Source: 0.5.23 speculative/spec_utils.py:276.
"""
_HELP_ADDRESS = (
    "name the address of a single SGLang server, without /v1; routers and other engines do not "
    "report speculation"
)
_LIFE = ("version", "model_path", "random_seed", "startup_time", "max_total_num_tokens")
"""Fields of `/server_info` that together identify a start of a server."""


class RunningSide(Struct, frozen=True):
    """A server of a comparison, and its `/server_info`."""

    name: str
    url: str
    key: str | None
    info: Mapping[str, Any]
    expected: ExpectedSide

    @property
    def tokenizer(self) -> str | None:
        found = self.info.get("tokenizer_path") or self.info.get("model_path")
        return str(found) if found else None

    @property
    def file_name(self) -> str:
        """The server's name in a comparison's folder name."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.url.partition("://")[2])

    @property
    def model(self) -> str:
        return str(self.info.get("served_model_name") or self.info.get("model_path") or "default")

    @property
    def identity(self) -> list[str]:
        """Facts that affect the measurement. They change when the server restarts."""
        speculation = {n: v for n, v in self.info.items() if n.startswith("speculative_")}
        return [self.url, life(self.info), json.dumps(speculation, sort_keys=True)]

    def order(self) -> EngineOrder:
        return EngineOrder(self.name, (), urlsplit(self.url).port or 0, self.url, self.key or "")


def life(info: Mapping[str, Any]) -> str:
    """Return a string that identifies a server's start."""
    return json.dumps([info.get(name) for name in _LIFE], sort_keys=True)


def simulated_in(env: Mapping[str, Any]) -> str | None:
    """Return the variable that simulates acceptance; None unless set to a number above 0."""
    for name in SIMULATED:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if float(env.get(name) or -1) > 0:
                return name
    return None


def server_url(text: str, option: str) -> str:
    """Return the normalized address of a server.

    Raises InputError if it is invalid or contains a secret.
    """
    place = Place(COMMAND_LINE, text=option)
    try:
        parts = urlsplit(text)
        port_is_right = parts.port != 0
    except ValueError:
        parts, port_is_right = SplitResult("", "", "", "", ""), False
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "the server address contains a secret", Place(COMMAND_LINE, text="--url"), _HELP_KEY
        )
    right = parts.scheme in ("http", "https") and parts.hostname and port_is_right
    if not right or parts.query or parts.fragment:
        help_ = "for example http://127.0.0.1:30000"
        raise InputError(f"{text!r} is not the address of a server", place, help_)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def key_of_server(*, is_baseline: bool) -> str | None:
    """Return the API key of a side from the environment; None if unset."""
    own = os.environ.get(KEY_AGAINST) if is_baseline else None
    return own or os.environ.get(KEY) or None


def running_side(url: str, key: str | None) -> RunningSide:
    """Query a server and return its side. Raises LaunchError if it cannot be measured."""
    name = url.partition("://")[2]
    info = server_info(url, key)
    _require_generates(name, info)
    algorithm = info.get("speculative_algorithm")
    drafts = info.get("speculative_num_draft_tokens")
    expected = ExpectedSide(
        name,
        bool(algorithm),
        drafts if isinstance(drafts, int) and algorithm else None,
        _simulated(info) if algorithm else None,
    )
    return RunningSide(name, url, key, info, expected)


def unasked_side(url: str) -> RunningSide:
    """Return a side without server information, for a dry run, which queries no server."""
    name = url.partition("://")[2]
    return RunningSide(name, url, None, {}, ExpectedSide(name, speculates=False))


def server_info(url: str, key: str | None) -> dict[str, Any]:
    """Return a server's `/server_info`.

    Certificates are verified and no proxy is used, as in the load generator. Redirects are not
    followed, because another server would receive the key. Raises LaunchError if the server is
    unreachable, rejects the key, or is not SGLang.
    """
    try:
        with EngineClient.of_server(url, key) as client:
            info = client.server_info()
    except EngineRefusalError as error:
        status = error.answer.status_code
        if status in (401, 403):
            refusal = "rejected the key" if key else "requires a key"
            raise LaunchError(f"{url} {refusal} (status {status})", help=_HELP_KEY) from None
        raise _not_sglang(url, str(error)) from None
    except EngineError as error:
        if isinstance(error.__cause__, HttpError) and not isinstance(
            error.__cause__, UnboundedError
        ):
            raise LaunchError(
                f"{url} does not answer: {error}", help="start the server, or correct --url"
            ) from None
        raise _not_sglang(url, f"{error.path or '/server_info'}: {error}") from None
    if not isinstance(info.get("model_path"), str):
        raise _not_sglang(url, "/server_info returns no model_path")
    return info


def _not_sglang(url: str, reason: str) -> LaunchError:
    return LaunchError(f"{url} is not an SGLang server: {reason}", help=_HELP_ADDRESS)


def _require_generates(name: str, info: Mapping[str, Any]) -> None:
    role = info.get("disaggregation_mode")
    if role not in (None, "null"):
        message = f"{name} is a {role} server, which cannot generate alone"
        raise LaunchError(message, help="measure a server without disaggregation")
    if info.get("is_embedding"):
        message = f"{name} serves embeddings and generates nothing"
        raise LaunchError(message, help="measure a server that generates text")
    if info.get("skip_tokenizer_init"):
        message = f"{name} runs with --skip-tokenizer-init and returns no text to measure"
        raise LaunchError(message, help="restart the server without this option")


def _simulated(info: Mapping[str, Any]) -> str | None:
    """Return the variable that simulates acceptance; None if unset or unknown.

    Servers report it only with SGLANG_EXPOSE_OWN_ENV_VARS (0.5.23
    scheduler_components/internal_state.py `_add_env_vars`).
    """
    states = info.get("internal_states")
    for state in states if isinstance(states, list) else ():
        env = state.get("env_vars") if isinstance(state, dict) else None
        found = simulated_in(env) if isinstance(env, dict) else None
        if found:
            return found
    return None


class Running:
    """A running server with the interface of a comparison's engine."""

    def __init__(self, side: RunningSide) -> None:
        self.url = side.url
        self._side = side
        self._life = life(side.info)
        self._lives_so_far = 1
        self._answers = True

    def wait(self, seconds: float) -> float:  # noqa: ARG002  same interface as a launched engine
        return 0.0

    @property
    def attempts(self) -> int:
        """Number of starts observed so far."""
        try:
            found = life(self.info)
        except LaunchError:
            self._answers = False
        else:
            self._answers = True
            self._lives_so_far += found != self._life
            self._life = found
        return self._lives_so_far

    @property
    def info(self) -> dict[str, Any]:
        return server_info(self.url, self._side.key)

    def is_gone(self, seconds: float = 0) -> bool:  # noqa: ARG002
        """True if the server did not answer the last query."""
        return not self._answers

    @property
    def pid(self) -> int | None:
        """Process ID of the server; None if not visible on this machine."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if not _is_here(parts.hostname or ""):
            return None
        with contextlib.suppress(psutil.Error, OSError):
            for connection in psutil.net_connections("tcp"):
                if (
                    connection.status == psutil.CONN_LISTEN
                    and connection.laddr
                    and connection.laddr.port == port
                ):
                    return connection.pid
        return None

    def pause(self) -> None:
        """Do nothing: the server is not ours to pause."""

    def resume(self) -> None:
        """Do nothing: the server was not paused."""

    def stop(self) -> None:
        """Do nothing: the server is not ours to stop."""


def _is_here(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
