"""Scripted engines of several releases, from one of them on with a planted regression."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from speclaunch.checks import Lookup
from speclaunch.engine import Address, resolve
from speclaunch.measure.releases.launched import (
    LaunchedRelease,
    ObservedServer,
    ReleaseRecipe,
    StartFailedError,
)
from speclaunch.serving.launch.client import EngineClient, verify
from speclaunch.serving.launch.runs import free_port
from tests.support.serving.launch import fake_sglang

RELEASES = (
    *("0.5.12.post1", "0.5.13.post1", "0.5.14", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.18"),
    *("0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"),
)

PLANTS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "start": (
        {"FAKE_BEHAVIOUR": "bad-flag"},
        {"FAKE_BEHAVIOUR": "bare-assertion"},
        {"FAKE_BEHAVIOUR": "silent-kill"},
        {"FAKE_BEHAVIOUR": "speculation-off"},
        {"FAKE_BEHAVIOUR": "generation-fails"},
    ),
    "acceptance>=3": ({"FAKE_ACCEPTED": "2.9"}, {"FAKE_ACCEPTED": "1.2"}),
    "same-output": ({"FAKE_SHIFT": "0"}, {"FAKE_SHIFT": "31"}),
    "command": ({"FAKE_VALUES": '{"max_running_requests": 3}'},),
}
"""What a bad release has set, by the check that finds it."""

COMMAND = """\
import json, os, sys, urllib.request
with urllib.request.urlopen(os.environ["SPECLAUNCH_URL"] + "/server_info") as answer:
    found = json.load(answer)
bad = found["max_running_requests"] != 4
if len(sys.argv) > 1:  # a share of wrong answers, by a number that counts the runs
    import random
    count = len(open(sys.argv[2]).read()) if os.path.exists(sys.argv[2]) else 0
    open(sys.argv[2], "a").write("x")
    bad ^= random.Random(f"{sys.argv[3]} {count}").random() < float(sys.argv[1])
sys.exit(bad)
"""


def releases(count: int, chance: random.Random) -> tuple[str, ...]:
    """Some releases in a row."""
    first = chance.randrange(len(RELEASES) - count + 1)
    return RELEASES[first : first + count]


def engines(
    folder: Path, held: Sequence[str], first_bad: int, plant: Mapping[str, str]
) -> dict[str, Path]:
    """An interpreter for each release; those from `first_bad` on have the plant.

    Without a scheduler and a detokenizer, an engine starts in a third of the time.
    """
    return {
        release: fake_sglang.install(folder / release, release, plant if at >= first_bad else None)
        for at, release in enumerate(held)
    }


def recipe(folder: Path, python: Path) -> Path:
    """A recipe that names one of them."""
    path = folder / "planted.yaml"
    path.write_text(fake_sglang.RECIPE.format(python=python).replace("h100", "auto"))
    return path


def command(folder: Path, *words: str) -> str:
    """A command that is content with a server of the good releases."""
    script = folder / "check.py"
    script.write_text(COMMAND)
    return " ".join([sys.executable, str(script), *words])


def options(pythons: Mapping[str, Path]) -> list[str]:
    """The options that name the interpreters."""
    return [f"--engine-python={release}={path}" for release, path in pythons.items()]


@contextmanager
def served(
    found: ReleaseRecipe,
    folder: Path,
    seconds: float,
    say: object,
    *,
    speculates: bool = True,
) -> Iterator[LaunchedRelease]:
    """What `launched` does, without a `speclaunch launch`: the engine alone, verified as by it."""
    prepared, port = found.prepared(), free_port()
    arguments = [word for one in prepared.rendered_args.arguments for word in one.tokens]
    with (folder / f"direct-{found.version}.log").open("ab") as log:
        process = subprocess.Popen(
            [prepared.python, "-m", "sglang.launch_server", *arguments, "--port", str(port)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        address = Address(host="127.0.0.1", port=port, tls=False, api_key=None)
        client, until = EngineClient(address), time.monotonic() + seconds
        while not client.healthy():
            if process.poll() is not None or time.monotonic() > until:
                raise StartFailedError(f"exit code {process.poll()}")
            time.sleep(0.05)
        checked = verify(client, prepared.rendered_args, prepared.recipe.deployment.launch.verify)
        if not checked.ok:
            raise StartFailedError("; ".join(checked.problems))
        engine: Any = SimpleNamespace(url=address.url, address=address, is_gone=lambda: False)
        plan = resolve(prepared.request({}), Lookup().facts(prepared.request({})))
        observed = ObservedServer(address, "bfloat16")
        yield LaunchedRelease(found.version, engine, plan, observed, 0.1, False)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
