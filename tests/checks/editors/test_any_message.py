"""Whatever an editor sends, in whatever order: the server goes on, and ends when it is told to."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.checks.editors.editor import SERVER
from tests.checks.editors.test_any_text import PIECES

METHODS = [
    "textDocument/didOpen", "textDocument/didChange", "textDocument/didSave", "textDocument/didClose",
    "textDocument/hover", "textDocument/completion", "textDocument/codeAction", "workspace/didChangeWatchedFiles",
    "initialized", "initialize", "$/cancelRequest", "$/setTrace", "nonsense", "textDocument/definition",
    "workspace/didChangeConfiguration",
]  # fmt: skip
URIS = [
    "file:///w/a.yaml",
    "file:///w/b.sh",
    "untitled:Untitled-1",
    "file:///w/%ff.yaml",
    "",
    "nonsense",
    "file://",
]
FIRST = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"capabilities": {}, "processId": None, "rootUri": None},
}


def junk(dice: random.Random) -> Any:
    return dice.choice([None, 1, -1, 10**30, "", "x", [], {}, [None], {"a": 1}, True, 0.5])


def params(dice: random.Random) -> Any:
    def position() -> Any:
        return {
            "line": dice.choice([0, 1, 5, -1, 10**9]),
            "character": dice.choice([0, 3, -1, 10**9]),
        }

    text = (
        "".join(dice.choice(PIECES) for _ in range(dice.randrange(12)))
        .encode("utf-8", "replace")
        .decode()
    )
    document = {
        "uri": dice.choice(URIS),
        "version": dice.randrange(3),
        "languageId": "yaml",
        "text": text,
    }
    span = {"start": position(), "end": position()}
    found: dict[str, Any] = {
        "textDocument": document, "position": position(), "range": span, "changes": [],
        "contentChanges": [dice.choice([{"text": text}, {"text": text, "range": span}])],
        "context": {"diagnostics": [{"range": span, "message": "m", "source": "speclaunch", "data": junk(dice)}]},
        "id": dice.randrange(9), "value": "off",
    }  # fmt: skip
    for key in list(found):
        if dice.random() < 0.1:
            found[key] = junk(dice)
    return found if dice.random() < 0.9 else junk(dice)


def framed(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_it_goes_on_and_ends_in_order(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    said = framed(FIRST)
    for number in range(1, 150):
        message: dict[str, Any] = {
            "jsonrpc": "2.0",
            "method": dice.choice(METHODS),
            "params": params(dice),
        }
        if dice.random() < 0.6 and not message["method"].startswith("textDocument/did"):
            message["id"] = number
        said += framed(message)
    said += framed({"jsonrpc": "2.0", "id": 999, "method": "shutdown"}) + framed(
        {"jsonrpc": "2.0", "method": "exit"}
    )
    done = subprocess.run(SERVER, input=said, cwd=tmp_path, capture_output=True, timeout=100)
    answers = done.stdout.split(b"Content-Length: ")
    assert any(b'"id": 999' in one for one in answers), done.stderr[-2000:].decode(errors="replace")
    assert done.returncode == 0, done.stderr[-2000:].decode(errors="replace")
    for one in answers[1:]:
        head, _, body = one.partition(b"\r\n\r\n")
        assert len(body) == int(head.split(b"\r\n")[0])
        json.loads(body)
