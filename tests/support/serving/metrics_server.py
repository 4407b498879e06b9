"""A scripted engine of the metrics endpoints: what 0.5.23 writes, with values that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FILLER = "".join(
    f'sglang:e2e_request_latency_seconds_bucket{{engine_type="unified",le="{n}",model_name="m"}} {n}.0\n'
    for n in range(800)
)
"""Histograms are most of what an engine writes: 90 KB in 0.5.23."""


@dataclass
class FakeRank:
    """Values of one data-parallel rank."""

    running: int = 2
    queued: int = 0
    kv: float = 0.25
    length: float = 2.5
    speed: float = 100.0
    decoded: int = 0
    graphs: int = 0
    others: int = 0
    retracted: int = 0

    def decode(self, steps: int, length: float | None = None, *, in_graph: bool = True) -> None:
        """Decode so many steps."""
        self.length = length or self.length
        self.decoded += round(steps * self.running * self.length)
        if in_graph:
            self.graphs += steps
        else:
            self.others += steps


@dataclass
class FakeMetrics:
    """State of a scripted engine."""

    ranks: list[FakeRank] = field(default_factory=lambda: [FakeRank()])
    generated: int = 0
    verifications: int = 0
    requests: int = 0
    role: str = "unified"
    has_metrics: bool = True
    info: dict[str, Any] = field(
        default_factory=lambda: {
            "model_path": "models/cycle",
            "served_model_name": "cycle",
            "version": "0.5.23",
            "speculative_algorithm": "EAGLE3",
        }
    )
    loads: dict[str, Any] | None = None
    workers: list[dict[str, Any]] | None = None
    raw: bytes | None = None
    """Text in place of the metrics."""
    others: dict[str, bytes] = field(default_factory=dict)
    """Bodies of other paths."""

    def text(self) -> bytes:
        """The metrics in the engine's form."""
        if self.raw is not None:
            return self.raw
        lines = []
        for number, rank in enumerate(self.ranks):
            dp = f'dp_rank="{number}",' if len(self.ranks) > 1 else ""
            labels = f'{dp}engine_type="{self.role}",model_name="cycle",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
            for name, value in {
                "num_running_reqs": rank.running,
                "num_queue_reqs": rank.queued,
                "token_usage": rank.kv,
                "gen_throughput": rank.speed,
                "spec_accept_length": rank.length,
                "spec_accept_rate": (rank.length - 1) / 3,
                "spec_num_steps": 3,
                "spec_num_draft_tokens": 4,
                "is_cuda_graph": 1,
                "num_retracted_requests_total": rank.retracted,
            }.items():
                lines.append(f"sglang:{name}{{{labels}}} {float(value)}")
            for name, mode, value in (
                ("realtime_tokens_total", "decode", rank.decoded),
                ("cuda_graph_passes_total", "decode_cuda_graph", rank.graphs),
                ("cuda_graph_passes_total", "decode_none", rank.others),
            ):
                lines.append(f'sglang:{name}{{{labels},mode="{mode}"}} {float(value)}')
        labels = f'engine_type="{self.role}",model_name="cycle"'
        for name, value in {
            "generation_tokens_total": self.generated,
            "spec_verify_calls_total": self.verifications,
            "num_requests_total": self.requests,
        }.items():
            lines.append(f"sglang:{name}{{{labels}}} {float(value)}")
        head = "# HELP sglang:num_running_reqs The number of running requests.\n"
        return (head + "\n".join(lines) + "\n" + FILLER).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: FakeMetrics

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        state = self.state
        bodies: dict[str, bytes | None] = {
            "/metrics": state.text() if state.has_metrics else None,
            "/server_info": json.dumps(state.info).encode(),
            "/v1/loads": json.dumps(state.loads).encode() if state.loads else None,
            "/workers": json.dumps({"workers": state.workers}).encode()
            if state.workers is not None
            else None,
            **state.others,
        }
        body = bodies.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")


@contextmanager
def metrics_server(state: FakeMetrics) -> Iterator[str]:
    """Serve a state; yield the address."""
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
