"""Servers that run already, as a small one plays them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from speclaunch.core.errors import InputError, LaunchError
from speclaunch.measure.bench.engines import (
    KEY,
    KEY_AGAINST,
    Running,
    key_of_server,
    running_side,
    server_url,
    simulated_in,
)
from tests.support.loops import rows

INFO = {
    "version": "0.5.23",
    "model_path": "/models/target",
    "tokenizer_path": "/models/tokenizer",
    "served_model_name": "target",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_draft_tokens": 16,
    "random_seed": 5,
    "max_total_num_tokens": 61440,
    "disaggregation_mode": "null",
    "internal_states": [{}],
}


class Server:
    """Answers `/server_info` with what it is told to."""

    def __init__(self) -> None:
        self.info: Any = dict(INFO)
        self.paths = ("/server_info",)
        self.key: str | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                told = self.headers.get("Authorization")
                if outer.key is not None and told != f"Bearer {outer.key}":
                    self.send_error(401)
                elif self.path == "/moved":
                    raise AssertionError(told)
                elif self.path not in outer.paths:
                    self.send_error(404)
                elif outer.info == "moved":
                    self.send_response(302)
                    self.send_header("Location", "/moved")
                    self.end_headers()
                else:
                    text = outer.info if isinstance(outer.info, str) else json.dumps(outer.info)
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.stop()


def test_a_server_says_what_it_does(server: Server) -> None:
    side = running_side(server.url, None)
    assert (side.expected.speculates, side.expected.drafts) == (True, 16)
    assert (side.tokenizer, side.model) == ("/models/tokenizer", "target")
    assert side.order().url == server.url
    server.info["speculative_algorithm"] = None
    assert not running_side(server.url, None).expected.speculates


def test_an_older_release_has_another_path(server: Server) -> None:
    server.paths = ("/get_server_info",)
    assert running_side(server.url, None).info["version"] == "0.5.23"
    assert server.asked == ["/server_info", "/get_server_info"]


def test_a_key_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = "right"
    with pytest.raises(LaunchError, match="requires a key"):
        running_side(server.url, None)
    with pytest.raises(LaunchError, match="rejected the key"):
        running_side(server.url, "wrong")
    assert running_side(server.url, "right").order().key == "right"
    monkeypatch.setenv(KEY, "one")
    assert (key_of_server(is_baseline=False), key_of_server(is_baseline=True)) == ("one", "one")
    monkeypatch.setenv(KEY_AGAINST, "other")
    assert (key_of_server(is_baseline=False), key_of_server(is_baseline=True)) == ("one", "other")


@pytest.mark.parametrize("info", ["<html>", "[]", "{}", '{"object": "list"}', "moved", "[" * 9999])
def test_what_is_not_sglang_is_said(server: Server, info: str) -> None:
    server.info = info
    with pytest.raises(LaunchError, match="not an SGLang server"):
        running_side(server.url, "key")
    assert "/moved" not in server.asked  # nobody else gets the key


def test_a_server_that_is_not_there_is_said(server: Server) -> None:
    url = server.url
    server.paths = ()
    with pytest.raises(LaunchError, match="answered 404"):
        running_side(url, None)
    with pytest.raises(LaunchError, match="does not answer"):
        running_side("http://127.0.0.1:1", None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"disaggregation_mode": "prefill"}, "prefill server"),
        ({"is_embedding": True}, "embeddings"),
        ({"skip_tokenizer_init": True}, "no text"),
    ],
)
def test_a_server_that_cannot_be_measured_is_said(
    server: Server, changes: dict[str, object], said: str
) -> None:
    server.info.update(changes)
    with pytest.raises(LaunchError, match=said):
        running_side(server.url, None)


def test_a_server_that_was_started_again_is_another_one(server: Server) -> None:
    side = running_side(server.url, None)
    running = Running(side)
    before = running.attempts
    assert (running.attempts, running.is_gone()) == (before, False)
    server.info["internal_states"] = [{"last_gen_throughput": 5.0}]
    assert running.attempts == before
    server.info["random_seed"] = 6
    assert running.attempts == before + 1
    assert running_side(server.url, None).identity != side.identity
    assert running.pid is not None
    server.stop()
    assert running.attempts == before + 1
    assert running.is_gone()
    server.stop = lambda: None  # type: ignore[method-assign]


def test_made_up_acceptance_is_seen_where_the_server_tells_its_variables(server: Server) -> None:
    server.info["internal_states"] = [{"env_vars": {"SGLANG_SIMULATE_ACC_LEN": "2.5"}}]
    assert running_side(server.url, None).expected.simulated == "SGLANG_SIMULATE_ACC_LEN"
    server.info["speculative_algorithm"] = None
    assert running_side(server.url, None).expected.simulated is None


@rows(
    "env, name",
    [
        ({"SGLANG_SIMULATE_ACC_LEN": "1.0"}, "SGLANG_SIMULATE_ACC_LEN"),
        ({"SIMULATE_ACC_LEN": "3"}, "SIMULATE_ACC_LEN"),
        ({"SGLANG_SIMULATE_ACC_LEN": "-1"}, None),  # the engine's own default
        ({"SGLANG_SIMULATE_ACC_LEN": ""}, None),
        ({"SGLANG_SIMULATE_ACC_LEN": None}, None),
        ({}, None),
    ],
)
def test_what_makes_acceptance_up(env: dict[str, Any], name: str | None) -> None:
    assert simulated_in(env) == name


def test_an_address() -> None:
    assert server_url("http://host:30000/", "--url x") == "http://host:30000"
    assert server_url("https://host/engine/", "--url x") == "https://host/engine"


@rows(
    "text",
    ["host:30000", "ftp://host", "http://", "http://host:99999", "http://[::1", "http://h?key=1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not the address"):
        server_url(text, f"--url {text}")


def test_a_secret_in_an_address_is_not_repeated() -> None:
    with pytest.raises(InputError) as raised:
        server_url("http://user:hunter2@host", "--url http://user:hunter2@host")
    assert "hunter2" not in repr(raised.value.problems)
