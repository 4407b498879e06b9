"""What is asked of the hub, what its answers mean, and what a hostile one can do: nothing.

A real server stands behind HF_ENDPOINT, and huggingface_hub is the real one.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from speclaunch.engine.facts import hub as hub_module
from speclaunch.engine.facts.checkpoint_file import CheckpointFile
from speclaunch.engine.facts.facts import Checkpoint, FactSource, UnknownFact
from speclaunch.engine.facts.hub import (
    HubRefusedError,
    fetch_checkpoint,
    fetch_facts,
    hub_source,
    revision_of,
)
from tests.support.hub_server import COMMIT, Answer, Handler, HubServer, serving
from tests.support.loops import rows

CONFIG = {"hidden_size": 8, "num_hidden_layers": 2}
VOCABULARY = {"model": {"vocab": {"a": 0, "b": 1}}}
DAY = date(2026, 11, 22)


def known(**options: Any) -> Checkpoint:
    found = fetch_checkpoint("org/name", **options)
    assert isinstance(found, Checkpoint), found
    return found


def unknown(**options: Any) -> UnknownFact:
    found = fetch_checkpoint("org/name", **options)
    assert isinstance(found, UnknownFact), found
    return found


def facts(**options: Any) -> CheckpointFile:
    return fetch_facts("org/name", today=DAY, **options)


def weights(header: dict[str, Any], body: int = 0) -> bytes:
    data = json.dumps(header).encode()
    return struct.pack("<Q", len(data)) + data + bytes(body)


def test_only_small_files_are_asked_for(hub: HubServer) -> None:
    found = known()
    assert (found.hidden_size, found.path, found.has_dspark_folder) == (8, None, None)
    assert found.origin is not None
    assert (found.origin.provenance, found.origin.revision) == (FactSource.HUB, COMMIT)
    assert hub.files == ["config.json", "hf_quant_config.json", "model.safetensors.index.json"]
    hub.asked.clear()
    known(tokenizer=True)
    assert hub.files[3:] == ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]


def test_what_they_say_counts(hub: HubServer) -> None:
    names = {"model.layers.2.eh_proj.weight": "a.safetensors"}
    hub.answers |= {
        "hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}},
        "model.safetensors.index.json": {"weight_map": names, "metadata": {"total_size": 5}},
        "tokenizer.json": VOCABULARY,
    }
    found = known(tokenizer=True)
    assert (found.quantization, found.mtp_weights, found.weight_bytes) == ("modelopt_fp4", True, 5)
    assert (found.missing_files, found.tokenizer_size) == ((), 2)


def test_the_first_answer_settles_the_commit(hub: HubServer) -> None:
    """`main` may move between two requests."""
    known()
    assert hub.asked[0].path == "/org/name/resolve/main/config.json"
    assert {one.path.split("/")[4] for one in hub.asked[1:]} == {COMMIT}


def test_a_revision(hub: HubServer) -> None:
    known(revision="refs/pr/1")
    assert hub.asked[0].path == "/org/name/resolve/refs%2Fpr%2F1/config.json"


def test_the_token_goes_to_the_hub_only(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", " hf_secret\n")
    with serving({"config.json": CONFIG}) as storage:
        away = {"location": f"{storage.url}/storage/config.json", "x-repo-commit": COMMIT}
        hub.answers["config.json"] = Answer(302, headers=away)
        found = known()
    assert found.origin is not None and found.origin.revision == COMMIT
    assert {one.headers["authorization"] for one in hub.asked} == {"Bearer hf_secret"}
    assert [one.headers.get("authorization") for one in storage.asked] == [None]


def refusal(status: int, code: str = "") -> Answer:
    return Answer(status, headers={"x-error-code": code} if code else {})


@pytest.mark.parametrize(
    ("answer", "token", "why", "help_"),
    [
        (
            refusal(401, "GatedRepo"),
            "",
            "it is gated",
            "accept its license there, and set HF_TOKEN",
        ),
        (refusal(403, "GatedRepo"), "t", "it is gated", "accept its license there"),
        (
            refusal(404, "RepoNotFound"),
            "t",
            "it is not on the hub, or it is private",
            "check its name",
        ),
        (refusal(401), "", "or it is private (HTTP 401)", "check its name, or set HF_TOKEN"),
        (refusal(404, "RevisionNotFound"), "", "does not have this revision", None),
        (refusal(404, "EntryNotFound"), "", "config.json on the hub is missing", None),
        (refusal(429), "", "HTTP 429", "set HF_TOKEN"),
        (refusal(503), "", "the hub returned a server error (HTTP 503)", "try again later"),
        (Answer(200, b"<html>log in</html>"), "", "not JSON", None),
        (Answer(200, b"[]"), "", "does not contain an object", None),
        (Answer(200, b"[" * 100_000), "", "not JSON", None),
        (Answer(200, b"x" * (9 << 20)), "", "config.json on the hub is missing or larger", None),
    ],
)
def test_why_there_is_nothing(
    answer: Answer,
    token: str,
    why: str,
    help_: str | None,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.answers["config.json"] = answer
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    found = unknown()
    assert why in found.why
    assert found.help == help_
    if not answer.body:
        with pytest.raises(HubRefusedError) as told:
            facts()
        assert (str(told.value), told.value.help) == (found.why, help_)


def test_no_network(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://me:secret@127.0.0.1:9")
    assert re.fullmatch(r"127\.0\.0\.1:9 cannot be reached: Connect(ion)?Error", unknown().why)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(("HF_ENDPOINT", odd) for odd in ("not a url", "http://[::", "file:///etc", "x://y")),
        ("HF_TOKEN", "a\nbé"),
    ],
)
def test_an_odd_environment(
    variable: str, value: str, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    hub.answers["config.json"] = refusal(401)
    assert unknown().why


@pytest.mark.parametrize("name", ["a--b/c", "org/na..me", "org/" + "y" * 97])
def test_a_name_that_is_none(name: str, hub: HubServer) -> None:
    found = fetch_checkpoint(name)
    assert isinstance(found, UnknownFact)
    assert found.why == "its name is not a valid hub name"
    assert not hub.asked


@pytest.mark.parametrize(
    ("switches", "named"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
        ({"TRANSFORMERS_OFFLINE": "yes"}, "TRANSFORMERS_OFFLINE"),
        ({"HF_HUB_OFFLINE": "0"}, None),
        ({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, None),
        ({"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "1"}, "TRANSFORMERS_OFFLINE"),
    ],
)
def test_offline_is_offline_as_for_the_library(
    switches: dict[str, str], named: str | None, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for switch, value in switches.items():
        monkeypatch.setenv(switch, value)
    script = "import huggingface_hub.constants as c; print(c.HF_HUB_OFFLINE)"
    theirs = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert theirs.stdout.strip() == str(named is not None)
    if named is None:
        assert known()
    else:
        assert unknown().why.startswith(f"{named} is set")
        assert not hub.asked


# --- everything that is kept


def test_everything_that_is_kept(hub: HubServer) -> None:
    names = {"model.layers.2.eh_proj.weight": "a.safetensors", "x": "b.safetensors"}
    hub.answers |= {
        "hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4"}},
        "model.safetensors.index.json": {"weight_map": names, "metadata": {"total_size": 500}},
        "tokenizer.json": VOCABULARY,
        "api": {
            "sha": COMMIT,
            "gated": "manual",
            "siblings": [
                {"rfilename": "a.safetensors", "size": 400},
                {"rfilename": "b.safetensors", "size": 108},
                {"rfilename": "old/c.safetensors", "size": 9},
            ],
        },
    }
    found = facts()
    assert (found.kind, found.source, found.read) == ("disk", "hub", "2026-11-22")
    assert (found.revision, found.gated, found.mtp_weights) == (COMMIT, True, True)
    assert (found.weight_bytes, found.weights_exact) == (500, True)
    assert found.quantization_file == {"quantization": {"quant_algo": "NVFP4"}}
    assert found.tokenizer_size == 2
    assert next(one for one in hub.asked if one.path.startswith("/api/")).query == "blobs=true"


def test_a_draft_of_one_file_is_asked_for_its_header(hub: HubServer) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "d2t": {"dtype": "I64", "shape": [4], "data_offsets": [0, 32]},
        "fc.weight": {"dtype": "BF16", "shape": [8, 24], "data_offsets": [32, 416]},
    }
    whole = weights(header, 416)
    siblings = [{"rfilename": "model.safetensors", "size": len(whole)}]
    hub.answers |= {"model.safetensors": whole, "api": {"siblings": siblings, "gated": False}}
    found = facts()
    assert (found.has_token_map, found.gated) == (True, False)
    assert (found.weight_bytes, found.weights_source) == (len(whole), "size of the files")
    assert found.tensors == {
        "count": 2,
        "bytes": {"BF16": 384, "I64": 32},
        "shapes": {"d2t": ["I64", [4]], "fc.weight": ["BF16", [8, 24]]},
    }
    ranges = [one.headers["range"] for one in hub.asked if one.file == "model.safetensors"]
    assert ranges == ["bytes=0-131071"]


@pytest.mark.thorough
def test_a_long_header_takes_two_requests(hub: HubServer) -> None:
    header = {
        f"t{at}": {"dtype": "F32", "shape": [1], "data_offsets": [at * 4, at * 4 + 4]}
        for at in range(5000)
    }
    whole = weights(header, 20000)
    siblings = [{"rfilename": "model.safetensors", "size": len(whole)}]
    hub.answers |= {"model.safetensors": whole, "api": {"siblings": siblings}}
    found = facts()
    assert found.tensors == {"count": 5000, "bytes": {"F32": 20000}}
    assert hub.files.count("model.safetensors") == 2


def test_a_mirror_without_pages_of_models(hub: HubServer) -> None:
    found = facts(revision="v1")
    assert (found.gated, found.weight_bytes, found.source) == (None, None, "hub@v1")


@rows("revision", ["main", "v1.0", "refs/pr/1", COMMIT])
def test_the_source_says_the_revision(revision: str) -> None:
    assert revision_of(hub_source(revision)) == revision
    assert revision_of("directory") is None


# --- a hub that lies, never ends, or sends too much


def drip(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        time.sleep(0.02)


def drip_header(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.02)


def pour(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * (1 << 20))


def claim(length: str) -> Any:
    def say(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", length)
        handler.end_headers()
        handler.wfile.write(b"{}")

    return say


def circle(handler: Handler) -> Answer:
    return Answer(302, headers={"location": handler.path})


def hang_up(handler: Handler) -> None:
    handler.connection.close()


def compressed(handler: Handler) -> Answer:
    return Answer(200, b"\x1f\x8b" + b"\0" * 100, {"content-encoding": "gzip"})


HOSTILE = {
    "drips": (drip, "did not respond within"),
    "drips its header": (drip_header, "did not respond within"),
    "pours without a length": (pour, "config.json on the hub is missing or larger"),
    "claims 10 GB": (claim("10000000000"), "config.json on the hub is missing or larger"),
    "claims more than comes": (claim("100"), ""),
    "claims less than comes": (claim("1"), "not JSON|cannot be reached: RemoteProtocolError"),
    "claims no number": (claim("-5"), ""),
    "turns in a circle": (circle, "cannot be reached: TooManyRedirects"),
    "hangs up": (hang_up, "cannot be reached"),
    "sends a bomb": (compressed, "compressed"),
    "sends to a file": (Answer(302, headers={"location": "file:///etc/passwd"}), "reached"),
    "sends nowhere": (Answer(302, headers={"location": "http://127.0.0.1:9/"}), "reached"),
    "is no hub": (lambda handler: handler.wfile.write(b"\0" * 1000) and None, "reached"),
    "is of another commit": (
        Answer(200, b"{}", {"x-repo-commit": "f" * 40}),
        "returned revision ffffffffffff, not 0123",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_hub(
    name: str, hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if "drips" in name:
        monkeypatch.setattr(hub_module, "_MOST_SECONDS", 0.6)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    hub.answers["config.json"], why = HOSTILE[name]
    found = unknown(revision=COMMIT if "commit" in name else "main")
    assert re.search(why, found.why)  # which of two depends on how the bytes were cut into packets
    if "drips" not in name:  # that one ends with its thread
        until = time.monotonic() + 10
        while list(tmp_path.iterdir()) and time.monotonic() < until:  # of a machine that is busy
            time.sleep(0.05)
        assert list(tmp_path.iterdir()) == []


LYING = {
    "a header of 2^63 bytes": (
        {"model.safetensors": struct.pack("<Q", 1 << 63)},
        "has a header of 9223372036854775808 bytes, more than the format allows",
    ),
    "a header of 90 MB": (
        {"model.safetensors": struct.pack("<Q", 90 << 20)},
        "has a header of 94371840 bytes, too large to read",
    ),
    "a header that does not come": (
        {"model.safetensors": struct.pack("<Q", 1000) + b"{"},
        "shorter than its header of 1000 bytes",
    ),
    "another size": (
        {
            "model.safetensors": struct.pack("<Q", 2) + b"{}",
            "api": {"siblings": [{"rfilename": "model.safetensors", "size": 1 << 40}]},
        },
        "model.safetensors has 1099511627776 bytes, but its header describes 10",
    ),
    "another commit": ({"api": {"sha": "f" * 40}}, "returned revision ffffffffffff"),
    "a page that is none": ({"api": b"<html>"}, "not JSON"),
    "an index that is none": ({"model.safetensors.index.json": b"<html>"}, "not JSON"),
}


@pytest.mark.parametrize("name", LYING)
def test_a_hub_that_lies(name: str, hub: HubServer) -> None:
    answers, why = LYING[name]
    hub.answers |= answers
    with pytest.raises(HubRefusedError, match=why):
        facts()


@pytest.mark.parametrize(
    "size", [-1, 1 << 70, "10", None, True, 1.5, float("nan"), {"a": 1}, [1 << 40] * 3]
)
def test_sizes_that_cannot_be_are_not_known(size: Any, hub: HubServer) -> None:
    hub.answers["api"] = {"siblings": [{"rfilename": "model.safetensors", "size": size}, 3, None]}
    assert facts().weight_bytes is None


def test_an_index_that_contradicts_the_sizes_is_not_believed(hub: HubServer) -> None:
    index = {"weight_map": {"a": "a.safetensors"}, "metadata": {"total_size": 1 << 45}}
    sizes = [{"rfilename": "a.safetensors", "size": 1000}]
    hub.answers |= {"model.safetensors.index.json": index, "api": {"siblings": sizes}}
    found = facts()
    assert (found.weight_bytes, found.weights_exact) == (1000, False)
    assert found.weights_source == "size of the files; the index differs"


def test_a_server_without_ranges_is_read_to_the_header_only(hub: HubServer) -> None:
    header = {"d2t": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}

    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", str(10 << 30))
        handler.end_headers()
        handler.wfile.write(weights(header))
        while True:
            handler.wfile.write(bytes(1 << 16))

    hub.answers["model.safetensors"] = endless
    assert facts().has_token_map is True


# --- as everywhere: the library's own ways to a token, an endpoint, a proxy

SCRIPT = (
    "from speclaunch.engine.facts.hub import fetch_checkpoint; "
    "f = fetch_checkpoint('org/name'); print(f.hidden_size if hasattr(f, 'hidden_size') else f.why)"
)


def fetched(tmp_path: Path, hub: HubServer, **variables: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_ENDPOINT": hub.url}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.thorough
def test_the_files_of_a_token_and_a_home_that_stays_as_it_was(
    hub: HubServer, tmp_path: Path
) -> None:
    token = tmp_path / ".cache" / "huggingface" / "token"
    token.parent.mkdir(parents=True)
    token.write_text("hf_of_the_file\n")
    other = tmp_path / "other"
    other.write_text("hf_other")
    before = sorted(tmp_path.rglob("*"))
    assert fetched(tmp_path, hub) == "8"
    assert hub.asked[-1].headers["authorization"] == "Bearer hf_of_the_file"
    assert "speclaunch/" in hub.asked[-1].headers["user-agent"]
    assert fetched(tmp_path, hub, HF_TOKEN_PATH=str(other)) == "8"
    assert hub.asked[-1].headers["authorization"] == "Bearer hf_other"
    assert fetched(tmp_path, hub, HF_HUB_DISABLE_IMPLICIT_TOKEN="1") == "8"
    assert "authorization" not in hub.asked[-1].headers
    assert sorted(tmp_path.rglob("*")) == before
    assert {one.path.partition("/resolve/")[0] for one in hub.asked} == {
        "/org/name"
    }  # no telemetry


@pytest.mark.thorough
def test_a_proxy(hub: HubServer, tmp_path: Path) -> None:
    seen = fetched(tmp_path, hub, HF_ENDPOINT="http://hub.invalid", HTTP_PROXY=hub.url)
    assert seen == "8"
    assert hub.asked[0].headers["host"] == "hub.invalid"


@pytest.mark.thorough
def test_a_hub_that_drips_does_not_keep_the_process(hub: HubServer, tmp_path: Path) -> None:
    hub.answers["config.json"] = drip_header
    script = f"from speclaunch.engine.facts import hub; hub._MOST_SECONDS = 0.5; {SCRIPT}"
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert "within 0 s" in done.stdout or "within 1 s" in done.stdout, done.stderr


@pytest.mark.thorough
def test_the_library_is_not_imported_offline() -> None:
    script = (
        "import sys; import speclaunch.app.verbs.commands as a; a.register([]); "
        "import speclaunch.engine.facts.find_checkpoint; import speclaunch.engine.facts.hub; "
        "print([m for m in sys.modules if m.startswith(('huggingface_hub', 'httpx'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
