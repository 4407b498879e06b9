"""Where torch comes from, asked with the real pip of indexes on this machine."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from speclaunch.serving.cpu_engine import install
from speclaunch.serving.cpu_engine.install import Offer, choose, offered, probe_options
from speclaunch.serving.cpu_engine.programs import InstallError, run_logged

pytestmark = pytest.mark.thorough

CPU, GPU = "2.13.0+cpu", "2.13.0"


@contextmanager
def index(*versions: str, wait_s: float = 0.0) -> Iterator[str]:
    """A package index with these versions of torch; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(wait_s)
            names = (f"torch-{version}-py3-none-any.whl" for version in versions)
            page = "".join(f'<a href="{name}">{name}</a>' for name in names).encode()
            self.send_response(200 if versions else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def hanging() -> Iterator[str]:
    """An index that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


@contextmanager
def refusing() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield f"http://127.0.0.1:{port}/simple"


class Pip:
    """Asks as the installation does, with nothing but one index configured."""

    def __init__(self, folder: Path, configured: str, **variables: str) -> None:
        self._log = folder / "log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        self._environment = kept | {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": configured,
            "NO_PROXY": "127.0.0.1",
            **variables,
        }

    def __call__(self, options: Sequence[str]) -> Offer:
        ended = run_logged(
            [sys.executable, "-m", "pip", *probe_options(options)],
            log=self._log,
            environment=self._environment,
            deadline_s=install.PROBE_S,
        )
        return offered(ended.lines, ended.in_time)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "READ_S", 1)


def test_pips_own_index_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with index("2.14.0", CPU, GPU) as own, index(CPU) as public:
        monkeypatch.setattr(install, "CPU_INDEX", public)
        source = choose(Pip(tmp_path, own), None)
    assert (source.requirement, source.options) == (f"torch=={CPU}", ("--no-deps",))


def test_a_folder_of_wheels_counts_as_pips_own(tmp_path: Path) -> None:
    wheel = tmp_path / f"torch-{CPU}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch-2.13.0+cpu.dist-info/METADATA", "Name: torch")
    with index("2.14.0", GPU) as own:
        source = choose(Pip(tmp_path, own, PIP_FIND_LINKS=str(tmp_path)), None)
    assert (source.requirement, source.options) == (f"torch=={CPU}", ("--no-deps",))


def test_pytorchs_index_comes_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with index("2.14.0", GPU) as own, index("2.14.0", CPU) as public:
        monkeypatch.setattr(install, "CPU_INDEX", public)
        source = choose(Pip(tmp_path, own), None)
    assert source.requirement == f"torch=={CPU}"
    assert source.options == ("--no-deps", "--index-url", public)


@pytest.mark.parametrize("public", [hanging, refusing, index])
def test_an_index_out_of_reach_costs_seconds(
    public: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs, it refuses, or it has no torch: the GPU build, with a word of its size."""
    with index("2.14.0", GPU) as own, public() as url:  # type: ignore[operator]
        monkeypatch.setattr(install, "CPU_INDEX", url)
        began = time.monotonic()
        source = choose(Pip(tmp_path, own), None)
    assert time.monotonic() - began < 30
    assert (source.requirement, source.options) == ("torch==2.13.0", ())
    assert url in source.notice and "2.7 GB" in source.notice


def test_an_index_that_trickles_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "PROBE_S", 2.0)
    monkeypatch.setattr(install, "READ_S", 60)
    with index(CPU, wait_s=30) as own:
        offer = Pip(tmp_path, own)(())
    assert offer.versions == frozenset() and offer.why_not == "no answer within 2 seconds"


@pytest.mark.parametrize("own", [hanging, refusing])
def test_no_index_at_all_is_said_at_once(
    own: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own() as url:  # type: ignore[operator]
        monkeypatch.setattr(install, "CPU_INDEX", url)
        with pytest.raises(InstallError, match=r"cannot be reached.*cannot be reached"):
            choose(Pip(tmp_path, url), None)


def test_a_named_index_is_the_only_one_for_torch(tmp_path: Path) -> None:
    said = r"does not offer torch 2\.13\.0: it has 2\.14\.0"
    with index(CPU) as own, index("2.14.0") as named, pytest.raises(InstallError, match=said):
        choose(Pip(tmp_path, own), named)
    with index() as own, index(GPU) as named:
        source = choose(Pip(tmp_path, own), named)
    assert source.requirement == f"torch=={GPU}"
