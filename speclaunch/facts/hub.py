"""Fetches the configuration of a checkpoint from the Hugging Face hub: never its weights."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import httpx

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.read_checkpoint import read_checkpoint
from speclaunch.facts.safe_json import MAX_CONFIG_BYTES, MAX_INDEX_BYTES, MAX_TOKENIZER_BYTES
from speclaunch.facts.weights import INDEX

_ENDPOINT = "https://huggingface.co"
_TIMEOUT_SECONDS = 20.0
_FILES = {
    "config.json": MAX_CONFIG_BYTES,
    "hf_quant_config.json": MAX_CONFIG_BYTES,
    INDEX: MAX_INDEX_BYTES,
}


class _RefusedError(Exception):
    """Why the hub does not give a file."""


def fetch_checkpoint(
    name: str, *, tokenizer: bool = False, transport: httpx.BaseTransport | None = None
) -> Checkpoint | UnknownFact:
    """The facts of a model on the hub: HF_ENDPOINT and HF_TOKEN count as everywhere."""
    what = f"the checkpoint {name}"
    wanted = {**_FILES, **({"tokenizer.json": MAX_TOKENIZER_BYTES} if tokenizer else {})}
    token = os.environ.get("HF_TOKEN")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    base = f"{os.environ.get('HF_ENDPOINT') or _ENDPOINT}/{name}/resolve/main"
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            httpx.Client(
                headers=headers,
                timeout=_TIMEOUT_SECONDS,
                follow_redirects=True,
                transport=transport,
            ) as client,
        ):
            for file, most in wanted.items():
                data = _get(client, f"{base}/{file}", most)
                if data is not None:
                    (Path(directory) / file).write_bytes(data)
                elif file == "config.json":
                    return UnknownFact(what, "the hub has no config.json for it", "check its name")
            found = read_checkpoint(name, Path(directory), tokenizer=tokenizer)
    except _RefusedError as error:
        return UnknownFact(what, str(error), "accept its licence on the hub and set HF_TOKEN")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return UnknownFact(what, f"the hub cannot be reached: {type(error).__name__}", None)
    return found


def _get(client: httpx.Client, url: str, most: int) -> bytes | None:
    """A file's bytes; None where it is not there, too large, or no JSON."""
    with client.stream("GET", url) as response:
        if response.status_code in (401, 403):
            raise _RefusedError(
                f"the hub refuses it (HTTP {response.status_code}): gated, private or misspelled"
            )
        if response.status_code != 200:
            return None
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > most:
                return None
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(bytes(data))
        return bytes(data)
    return None
