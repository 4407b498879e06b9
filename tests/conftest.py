"""What tests of several packages share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from speclaunch.core.files import speclaunch_home
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.cpu_engine.install import install
from tests.support import sampling
from tests.support.hub_server import HubServer, serving

gc.disable()  # collecting makes objects that stay: the collector would go through all of them


def pytest_collection_finish() -> None:
    """Collect what is to be collected from now on; what there is stays."""
    gc.collect()
    gc.freeze()
    gc.enable()


# The same examples on every machine, so that a red run can be repeated; `HYPOTHESIS=random` looks
# for others.
# No deadlines: a busy machine is no defect, and what hangs is ended by pytest-timeout.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", print_blob=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "repeatable"))
if os.environ.get("HYPOTHESIS", "repeatable") == "repeatable":
    # Hypothesis draws constants of all modules loaded so far: examples would depend on which tests
    # ran before, and reading the modules costs each worker 5 CPU seconds in a fresh clone.
    providers._get_local_constants = lambda: providers._local_constants

# What a test finds is found by the test; those of the cache itself switch it on.
os.environ["SPECLAUNCH_NO_CACHE"] = "1"

# Where the tests themselves run there, `lint` would annotate.
os.environ.pop("GITHUB_ACTIONS", None)

_HOME = speclaunch_home()
"""Read when pytest starts: a test that sets SPECLAUNCH_HOME for itself doesn't move the engine."""

_NO_ENGINE = tempfile.mkdtemp(prefix="speclaunch-tests-")
"""Homes, one per process, of tests that need no engine: one may be installed while they run."""

pytest_configure = sampling.pytest_configure


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose the home before fixtures of any scope start something."""
    on_the_engine = item.get_closest_marker("e2e") is not None
    os.environ["SPECLAUNCH_HOME"] = str(_HOME) if on_the_engine else f"{_NO_ENGINE}/{os.getpid()}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests on the engine of a module in one worker: they share what it has started."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(sampling.engine_group(item)))


def pytest_unconfigure() -> None:
    """Leave no home behind."""
    shutil.rmtree(_NO_ENGINE, ignore_errors=True)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job, or a CI runner, ignores Ctrl-C, and every process that a test
    # starts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cpu_engine() -> CpuEngine:
    """The real engine on the CPU, installed by the first run that asks for it.

    With several workers one installs, and the others wait for its lock.
    """
    return install(_HOME)


@pytest.fixture
def cpu_environment(cpu_engine: CpuEngine) -> dict[str, str]:
    """The complete environment of a process of that engine."""
    inherited = dict(os.environ)
    return inherited | cpu_engine.environment(inherited)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A hub with one small model for all names; no token, no proxy, and nobody's home."""
    for name in list(os.environ):
        if name.startswith("HF_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hf-home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serving({"config.json": {"hidden_size": 8, "num_hidden_layers": 2}}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home of speclaunch."""
    return tmp_path / "home"
