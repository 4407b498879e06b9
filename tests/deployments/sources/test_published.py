"""Commands of the kinds that people publish: issues, cookbooks, CI, container images."""

from __future__ import annotations

import shlex

import pytest

from speclaunch.deployments.sources.interface import InvocationKind
from tests.support.deployments.sources.helpers import env, shell, slices, texts

COMMANDS = [
    # abbreviations, =, a trailing slash
    "CUDA_VISIBLE_DEVICES=0,1,3,7 python -m sglang.launch_server --model /ckpt/Llama-3.1-70B --port 9001"
    " --tensor-parallel-size 4 --speculative-algo EAGLE --speculative-draft /ckpt/draft/ --mem-fraction 0.7",
    "python3 -m sglang.launch_server --model-path org/Model-V3.2 --dp-size=8 --max-running-requests=64"
    " --fp4-gemm-backend=flashinfer_cutlass --enable-dp-attention",
    # several variables, a JSON value
    "SGLANG_USE_AITER=1 SGLANG_ENABLE_SPEC_V2=True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    " python3 -m sglang.launch_server --model org/m --mem-frac 0.7"
    """ --model-loader-extra-config '{"enable_multithread_load": true, "num_threads": 64}'""",
    "SGLANG_ENABLE_SPEC_V2=1 sglang serve --model-path org/m --tp 8 --speculative-algorithm=EAGLE3"
    " --speculative-num-steps 3 --trust-remote-code --host 0.0.0.0 --port 30000",
    "python3 -m sglang.launch_server --model-path org/m --cuda-graph-bs "
    + " ".join(map(str, range(1, 65)))
    + " --speculative-algorithm DFLASH --page-size 256",
    "python -m sglang.launch_server --speculative-model '[ngram]' --num-speculative-tokens 3",
    "sglang serve --disaggregation-ib-device mlx5_0,mlx5_1 --disaggregation-mode decode --model-path /model",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("layout", ["one line", "continued", "in a script", "in bash -c"])
def test_published_commands(command: str, layout: str) -> None:
    words = shlex.split(command)
    start = words.index("serve" if "serve" in words else "sglang.launch_server") + 1
    script = command + "\n"
    if layout == "continued":
        script = command.replace(" --", " \\\n  --") + "\n"
    elif layout == "in a script":
        script = (
            f"#!/bin/bash\nset -euo pipefail\n\nif true; then\n\t{command} 2>&1 | tee x.log\nfi\n"
        )
    elif layout == "in bash -c":
        script = "bash -c " + shlex.quote(command) + "\n"
    found = shell(script)
    assert texts(found) == words[start:]
    assert all(word.evaluated for word in found.words)
    assert found.kind is (
        InvocationKind.SERVE if "serve" in words else InvocationKind.LAUNCH_SERVER
    )
    assert env(found) == dict(
        word.split("=", 1) for word in words[: start - 2] if word[0].isupper()
    )
    if layout != "in bash -c":
        assert [shlex.split(raw) for raw in slices(script, found)] == [[w] for w in words[start:]]
