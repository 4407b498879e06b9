"""One server on two hosts, and prefill with decode: the real engine on the CPU.

The hosts are two ranks on the loopback device. The engine divides the processor itself: SGLANG_CPU_OMP_THREADS_BIND has to
name cores for each rank, because it gives each a NUMA node of its own otherwise and this machine may
have one (0.5.23 srt/utils/numa_utils.py `init_threads_binding`).
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import psutil
import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.launch.runs import free_port

from .conftest import survivors

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
PATIENCE = 600
CORES = '+engine.env.SGLANG_CPU_OMP_THREADS_BIND="0|1"'
SMALL_POOL = (
    "args.mem_fraction_static=0.0001",
    "args.max_total_tokens=null",
    "recovery.floors.mem_fraction_static=0.00005",
    "recovery.limits.mem_fraction_static=0.2",
)


class Host:
    """Where a rank runs: words that go before its command, its address, its interface."""

    def __init__(self, prefix: tuple[str, ...], address: str, interface: str) -> None:
        self.prefix, self.address, self.interface = prefix, address, interface


@pytest.fixture
def hosts() -> tuple[Host, Host]:
    """Two ranks at one address. Network namespaces alone are no two hosts to this engine: they
    share /dev/shm, by which it takes them for one and waits at 127.0.0.1 of the wrong one."""
    return Host((), "127.0.0.1", "lo"), Host((), "127.0.0.1", "lo")


class Rank:
    """speclaunch on one of the hosts."""

    def __init__(self, host: Host, number: int, meeting: str, *words: str) -> None:
        self.host, self.port = host, free_port()
        self.process = subprocess.Popen(
            [
                *[*host.prefix, sys.executable, "-m", "speclaunch", "launch"],
                *["recipe=cpu_standalone", f"args.port={self.port}", "--force"],
                *["+args.nnodes=2", f"+args.node_rank={number}", "+args.tp_size=2"],
                *[f"+args.dist_init_addr={meeting}", CORES],
                f"+engine.env.GLOO_SOCKET_IFNAME={host.interface}",
                # else a host without a route names 127.0.0.1 to the others (utils/network.py
                # `get_local_ip_auto`), and all wait for each other without a word
                f"+engine.env.SGLANG_HOST_IP={host.address}",
                *["recovery=default", *words],
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def below(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def engine(self) -> psutil.Process:
        (found,) = (p for p in self.below() if "sglang.launch_server" in p.cmdline())
        return found


def ended(*ranks: Rank) -> list[str]:
    return [one.process.communicate(timeout=PATIENCE)[0] for one in ranks]


@contextlib.contextmanager
def both(hosts: tuple[Host, Host], *words: str) -> Iterator[tuple[Rank, Rank]]:
    meeting = f"{hosts[0].address}:{free_port()}"
    first, second = (Rank(host, n, meeting, *words) for n, host in enumerate(hosts))
    try:
        yield first, second
    finally:
        for one in (first, second):
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM)
        for one in (first, second):
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.communicate(timeout=60)
            one.process.kill()


def journal(said: str) -> dict[str, Any]:
    line = next(line for line in said.splitlines() if "log: " in line)
    log = Path(line.rsplit("log: ", 1)[1].strip())
    found: dict[str, Any] = json.loads((log.parent / "journal.json").read_text())
    return found


def test_two_hosts_step_to_the_same_rung_and_serve_one_model(
    hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    agreement = [f"launch.agreement.directory={tmp_path}", "launch.agreement.job=e2e"]
    with both(hosts, "--smoke", *SMALL_POOL, *agreement) as ranks:
        told = ended(*ranks)
    assert [one.process.returncode for one in ranks] == [0, 0], told
    assert "is serving at" in told[0] and "acceptance length" in told[0]
    assert "is ready as a worker of the first rank" in told[1]
    attempts = [[one["changes"] for one in journal(text)["attempts"]] for text in told]
    assert attempts[0] == attempts[1] and len(attempts[0]) >= 2
    assert attempts[0][-1]["mem_fraction_static"] > 0.0001
    first = json.loads(next(tmp_path.glob("e2e/g0001/failed-00000-*")).read_bytes())
    assert first["memory"] and first["cause"] in ("weights-exceed-fraction", "kv-pool-too-small")
    assert not list(tmp_path.rglob(".tmp-*"))


def test_the_end_of_one_rank_is_told_by_the_other(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    agreement = [f"launch.agreement.directory={tmp_path}", "launch.agreement.job=e2e"]
    with both(hosts, *agreement) as ranks:
        until = time.monotonic() + PATIENCE
        while not list(tmp_path.glob("e2e/g0001/served-*")):
            ends = [one.process.poll() for one in ranks]
            assert time.monotonic() < until and ends == [None, None], ended(*ranks)
            time.sleep(0.5)
        processes = [one for rank in ranks for one in rank.below()]
        ranks[1].engine().kill()
        told = ended(*ranks)
    assert [one.process.returncode for one in ranks] == [1, 1]
    for text in told:  # the first rank may notice that it lost the other before that one is heard
        assert "error: cpu_standalone" in text, told
        assert "server.1" in text or "lost another rank" in text, told
    assert survivors(processes, seconds=10) == []


def has_nixl(engine: CpuEngine) -> bool:
    asked = [str(engine.python), "-c", "import nixl._api"]
    return subprocess.run(asked, check=False, capture_output=True).returncode == 0


def test_prefill_and_decode_generate_together(cpu_engine: CpuEngine) -> None:
    """Without speculation: an idle draft of decode cannot run here (0.5.23 layers/
    rotary_embedding/base.py `forward_native`: reshape of 0 elements)."""
    if not has_nixl(cpu_engine):
        pytest.skip("the CPU engine has no nixl: pip install nixl into its environment")
    bootstrap, ports = free_port(), (free_port(), free_port())
    processes = []
    for mode, port in zip(("prefill", "decode"), ports, strict=True):
        words = [f"args.port={port}", f"+args.disaggregation_mode={mode}"]
        words += ["args.speculative_algorithm=null", "args.speculative_num_draft_tokens=null"]
        words += ["+args.disaggregation_transfer_backend=nixl"]
        words += [f"+args.disaggregation_bootstrap_port={bootstrap}"]
        if mode == "decode":  # the other way to keep what is retracted needs pinned memory
            words += ["+args.disaggregation_decode_retraction_backup=cpu_tensor"]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "speclaunch", "recipe=cpu_ngram", "--force", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    try:
        until = time.monotonic() + PATIENCE
        for port in ports:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                        break
                assert time.monotonic() < until and None in [p.poll() for p in processes]
                time.sleep(0.5)
        body = {
            "text": "hello there",
            "sampling_params": {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True},
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": bootstrap,
            "bootstrap_room": 7,
        }
        url = "http://127.0.0.1:{}/generate"
        with httpx.Client(timeout=120) as client:
            sent = Thread(target=lambda: httpx.post(url.format(ports[0]), json=body, timeout=120))
            sent.start()
            answer = client.post(url.format(ports[1]), json=body).json()
            sent.join()
        ids = answer["output_ids"]
        assert len(ids) == 24 and ids[:8] == ids[8:16] == ids[16:24], "the cycle goes round"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
