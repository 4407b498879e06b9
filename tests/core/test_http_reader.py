"""HTTP answers are read within bounds, by everyone that reads them."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from speclaunch.core import http_reader
from speclaunch.core.errors import LaunchError
from speclaunch.core.http_reader import (
    HttpError,
    HttpReader,
    LateError,
    UnboundedError,
    collect,
)
from speclaunch.deployments.recipe.schema import VerificationSection
from speclaunch.engine.releases.command import RenderedArgs
from speclaunch.engine.releases.shell import Address
from speclaunch.measure.bench import engines
from speclaunch.measure.prove.answers import ProofPrompt, ProofServer
from speclaunch.serving.launch import client as client_module
from speclaunch.serving.launch.client import EngineClient, EngineError, verify
from speclaunch.serving.launch.watchdog import EngineProbe, ProbeAnswer
from tests.support.scripted_server import HOSTILE, OK, body, redirect, scripted, sends

SECONDS = 0.3
MOST = 1 << 20
WRONG_JSON = {
    "no JSON",
    "no object",
    "nested",
    "nested a little",
    "millions of values",
    "huge number",
    "infinite",
    "other types",
}
"""Good HTTP."""
LATE = {"a byte at a time", "a header byte at a time", "silent"}
UNBOUNDED = {
    *("endless body", "endless chunks", "endless trailers", "endless header"),
    *("endless header line", "endless interim answers", "endless chunk size"),
    *("endless status line", "gigabytes announced"),
}


def address(url: str) -> Address:
    return Address("127.0.0.1", urlsplit(url).port or 0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - WRONG_JSON))
def test_no_answer_escapes_its_bounds(name: str) -> None:
    with scripted(HOSTILE[name]) as url:
        reader = HttpReader(url, {})
        try:
            found = reader.request("GET", "/server_info", SECONDS, most=MOST, redirects=3)
        except HttpError as error:
            kind = LateError if name in LATE else UnboundedError if name in UNBOUNDED else HttpError
            # http.client has bounds of its own for header lines and their number
            assert type(error) is kind or name.startswith("endless"), error
            assert str(error).isprintable() and len(str(error)) < 300
        else:
            assert (found.status, len(found.content)) in {(500, 65536), (307, 0), (200, 1)}
        finally:
            reader.close()


def test_an_answer_as_large_as_its_bound_is_read() -> None:
    for content in (b"", b"a", b"a" * MOST):
        chunked = b"%x\r\n%s\r\n" % (len(content), content) if content else b""
        for answer in (
            body(content),
            OK + b"\r\n" + content,
            OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked + b"0\r\n\r\n",
        ):
            with scripted(sends(answer)) as url:
                found = HttpReader(url, {}).request("GET", "/", 20, most=MOST)
            assert (found.status, found.content == content) == (200, True)


def test_a_connection_is_used_again() -> None:
    connections: list[object] = []

    def script(connection: object) -> None:
        connections.append(connection)
        connection.sendall(body(b"{}"))  # type: ignore[attr-defined]
        while connection.recv(65536):  # type: ignore[attr-defined]
            connection.sendall(body(b"{}"))  # type: ignore[attr-defined]

    with scripted(script) as url:
        reader = HttpReader(url, {})
        for _ in range(3):
            assert reader.request("GET", "/", 20).content == b"{}"
        reader.close()
    assert len(connections) == 1


def test_a_redirect_within_the_server_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for location in (b"/metrics/?a=b", b"metrics/?a=b", b"HERE/metrics/?a=b"):
        asked: list[str] = []

        def script(connection: object, where: bytes = location, seen: list[str] = asked) -> None:
            seen.append("")
            if len(seen) == 1:
                redirect(where.replace(b"HERE", url.encode()))(connection)  # type: ignore[arg-type]
            else:
                sends(body(b"there"))(connection)  # type: ignore[arg-type]

        with scripted(script) as url:
            found = HttpReader(url, {}).request("GET", "/metrics", 20, redirects=1)
        assert found.content == b"there"


def test_chunks_are_collected_up_to_their_bound() -> None:
    late = time.monotonic() - 1
    assert collect(iter([b"ab", b"cd"]), 4, late + 100) == b"abcd"
    assert collect(iter([b"ab", b"cd", b"e"]), 3, late + 100) == b"abcd"
    with pytest.raises(LateError):
        collect(iter([b"ab", b"cd"]), 4, late)


# its users

Use = Callable[[str], None]


def of_bench(url: str) -> None:
    with pytest.raises(LaunchError):
        engines.server_info(url, None)


def of_the_check(url: str) -> None:
    with EngineClient(address(url)) as client:
        settings = VerificationSection(timeout_seconds=SECONDS)
        found = verify(client, RenderedArgs("0.5.23", (), {}), settings)
    assert not found.ok and len(found.problems[0]) < 500


def of_the_watchdog(url: str) -> None:
    probe = EngineProbe(address(url))
    probe.counters()
    assert probe.generate(SECONDS) in set(ProbeAnswer)


def of_a_proof(url: str) -> None:
    with pytest.raises((LaunchError, EngineError)):
        ProofServer(lambda: EngineClient(address(url)), 1).answers(
            [ProofPrompt("a", 2)], logprobs=False
        )


def of_readiness(url: str) -> None:
    with EngineClient(address(url)) as client:
        client.healthy()


USERS: tuple[Use, ...] = (of_bench, of_the_check, of_the_watchdog, of_a_proof, of_readiness)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.parametrize("use", USERS)
def test_a_hostile_server_is_a_reported_failure(
    use: Use, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_reader, "MOST_BYTES", MOST)
    for method in (EngineClient.get, EngineClient.server_info):
        monkeypatch.setattr(method, "__defaults__", (SECONDS,))
    monkeypatch.setattr(client_module, "HEALTH_SECONDS", SECONDS)
    monkeypatch.setattr("speclaunch.measure.prove.answers._SECONDS", SECONDS)
    with scripted(HOSTILE[name]) as url:
        use(url)
