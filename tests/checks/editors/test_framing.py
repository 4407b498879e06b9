"""Whatever frames an editor sends, the messages between them are answered."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.editors.server import MAX_MESSAGE_BYTES, SKIPPED, BoundedInput
from tests.checks.editors.editor import SERVER
from tests.support.loops import rows


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def messages(data: bytes) -> list[bytes]:
    """What pygls would read."""
    stream = BoundedInput(io.BytesIO(data))
    found = []
    while line := stream.readline():
        assert line.startswith(b"Content-Length: ")
        assert stream.readline() == b"\r\n"
        found.append(stream.read(int(line[16:])))
    return found


GARBAGE = {
    "no length": b"\r\n",
    "another header": b"Content-Type: x\r\n\r\n",
    "negative": b"Content-Length: -5\r\n\r\n",
    "no number": b"Content-Length: lots\r\n\r\n",
    "endless digits": b"Content-Length: " + b"9" * 100_000 + b"\r\n\r\n",
    "nothing": b"Content-Length: 0\r\n\r\n",
    "an endless header": b"x" * (1 << 20) + b"\r\n\r\n",
    "no length, with a body": b'Content-Length: -1\r\n\r\n{"a": 1}',
    "many headers": b"a: b\r\n" * 100_000,
    "line feeds alone": b"x\n\n",
}


@rows("name", GARBAGE)
def test_the_next_message_is_found_behind_anything(name: str) -> None:
    data = framed(b"1") + GARBAGE[name] + framed(b"22") + framed(b"333")
    assert messages(data) == [b"1", b"22", b"333"]


def test_headers_are_read_as_editors_write_them() -> None:
    data = b"Content-Type: a\r\ncontent-length:2\r\nX: y\r\n\r\nab" + b"CONTENT-LENGTH : 9\r\n\r\n"
    assert messages(data)[0] == b"ab"
    assert messages(b"Content-Length: 5\r\n\r\nab") == [b"ab"]
    assert messages(b"Content-Length: 5\r\n") == []


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, 10**18])
def test_a_message_that_is_too_large_becomes_a_notification(size: int) -> None:
    body = b"x" * size if size < 1 << 30 else b""
    found = messages(b"Content-Length: %d\r\n\r\n%s" % (size, body) + framed(b"22"))
    assert [json.loads(found[0])["method"], found[1]] == [SKIPPED, b"22"]
    assert json.loads(found[0])["params"] == {"size": size}


def spoken(method: str, params: Any, number: int | None = None) -> bytes:
    said = {"jsonrpc": "2.0", "method": method, "params": params}
    return framed(json.dumps(said if number is None else {**said, "id": number}).encode())


@pytest.mark.thorough
def test_the_server_goes_on(tmp_path: Path) -> None:
    """Behind frames of no use, broken JSON, bombs, and names that no file can have."""
    text = "python -m sglang.launch_server --model-path a/b\n"
    initialize = {"capabilities": {}, "processId": None, "rootUri": tmp_path.as_uri()}
    data = spoken("initialize", initialize, 1) + spoken("initialized", {})
    data += b"".join(GARBAGE.values()) + framed(b"{") + framed(b"\xff") + framed(b"9" * 100_000)
    data += framed(b"[" * 100_000) + framed(b'{"a":' * 100_000)
    data += b"Content-Length: 999999999999999999\r\n\r\n"
    bomb = "args: " + "[" * 50_000 + "]" * 50_000
    for name, content in (("a.yaml", bomb), ("x" * 100_000 + ".sh", text), ("b.sh", text)):
        document = {
            "uri": f"{tmp_path.as_uri()}/{name}",
            "languageId": "x",
            "version": 1,
            "text": content,
        }
        data += spoken("textDocument/didOpen", {"textDocument": document})
    large = {**document, "uri": f"{tmp_path.as_uri()}/c.sh", "text": text * 250_000}
    data += spoken("textDocument/didOpen", {"textDocument": large})
    asked = {"textDocument": {"uri": large["uri"]}, "context": {"diagnostics": []}}
    asked["range"] = {one: {"line": 0, "character": 0} for one in ("start", "end")}
    asked["context"]["only"] = ["source.fixAll"]
    for number, uri in enumerate((f"{tmp_path.as_uri()}/b.sh", large["uri"], document["uri"]), 2):
        data += spoken("textDocument/codeAction", {**asked, "textDocument": {"uri": uri}}, number)
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(
            SERVER, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(data)
        server.stdin.flush()
        found = messages_until(server.stdout, number)
        server.stdin.write(spoken("shutdown", None, 9) + spoken("exit", None))
        server.stdin.close()
        server.stdout.read()
        assert server.wait(60) == 0
    said = b"\n".join(found).decode()
    assert "skipped a message of 999999999999999999 bytes" in said
    assert "nested more than 60 levels deep" in said
    assert "not checked: the text has 12000000 bytes, more than 10 MiB" in said


def messages_until(stream: Any, number: int) -> list[bytes]:
    """The messages up to the answer to a request."""
    found: list[bytes] = []
    while not found or json.loads(found[-1]).get("id") != number:
        length = int(stream.readline().partition(b":")[2])
        while stream.readline().strip():
            pass
        found.append(stream.read(length))
    return found
