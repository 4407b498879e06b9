"""Recipes that need what the shipped ones do not: roles, several hosts, secrets, odd values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from speclaunch.deployments.targets.assemble import RENDERERS
from speclaunch.deployments.targets.monitoring import MonitoringRenderer
from tests.support import program

SERVING = sorted(
    name for name, kind in RENDERERS.items() if not issubclass(kind, MonitoringRenderer)
)
"""The targets whose text starts servers."""
_R1 = "model_path: deepseek-ai/DeepSeek-R1"
_EAGLE = (
    "speculative_algorithm: EAGLE, speculative_num_steps: 1, speculative_eagle_topk: 1, "
    "speculative_num_draft_tokens: 2"
)
RECIPES = {
    "one_host": "args: {model_path: meta-llama/Llama-3.1-8B-Instruct}\n",
    "replicas": (
        "args: {model_path: Qwen/Qwen2.5-7B-Instruct, api_key: sk-very-secret}\n"
        "roles: {chat: {replicas: 3}}\nrouter: {args: {policy: cache_aware}, port: 8080}\n"
    ),
    "several_hosts": (
        f"args: {{{_R1}, tp_size: 16, nnodes: 2, {_EAGLE}}}\nhardware: {{name: 'h100:8'}}\n"
        "deploy: {model_cache: /data/models, jit_cache: /data/kernels}\n"
    ),
    "hosts_twice": (
        f"args: {{{_R1}, tp_size: 16, nnodes: 2}}\nhardware: {{name: 'h100:8'}}\n"
        "roles: {chat: {replicas: 2}}\n"
    ),
    "prefill_decode": (
        f"args: {{{_R1}, tp_size: 8, {_EAGLE}, disaggregation_transfer_backend: mooncake}}\n"
        "hardware: {name: 'h200:8'}\nroles: {prefill: {replicas: 2}, decode: {}}\n"
        "router: {port: 8000}\ndeploy: {rdma: rdma/ib}\n"
    ),
    "prefill_decode_hosts": (
        f"args: {{{_R1}, {_EAGLE}, api_key: sk-very-secret}}\n"
        "engine: {env: {HF_TOKEN: hf_abcdefg, NCCL_DEBUG: INFO, ODD: 'a $b $(c) ${d}'}}\n"
        "hardware: {name: 'h200:8'}\n"
        "roles:\n"
        "  prefill: {args: {tp_size: 16, nnodes: 2}}\n"
        "  decode: {replicas: 2, args: {tp_size: 8}}\n"
        "router: {args: {policy: cache_aware}}\n"
        "deploy: {models: 'pvc:models', namespace: llm, rdma: rdma/ib, drain_seconds: 600}\n"
    ),
    "amd": (
        "args: {model_path: meta-llama/Llama-3.1-8B-Instruct, tp_size: 2}\n"
        "hardware: {name: 'mi300x:8'}\nroles: {chat: {replicas: 2}}\nrouter: {}\n"
    ),
    "own_path": "args: {model_path: /srv/models/llama, tp_size: 4, port: 31000}\n",
    "from_the_environment": (
        "args: {model_path: '${oc.env:UNSET_DIR}/llama', api_key: '${oc.env:UNSET_KEY}'}\n"
        "engine: {env: {WHERE: '/a/${oc.env:UNSET_DIR}'}}\n"
    ),
}
"""What a test may render, by name. Secrets in it contain `very-secret` or `hf_abcdefg`."""


def write(folder: Path, name: str, more: str = "") -> Path:
    """The recipe as a file; `more` are further lines of it."""
    path = folder / f"{name}.yaml"
    body = RECIPES[name].replace("${d}", "\\${d}")
    path.write_text(f"defaults: [base, _self_]\n{body}{more}")
    return path


STORED = Path(__file__).parent / "rendered"
"""Stored texts. `python -m tests.deployments.targets.deployments` renews them."""
_COMPARED = ("replicas", "several_hosts", "prefill_decode", "prefill_decode_hosts", "own_path")
_OPTIONS = ("--engine", "0.5.23", "args.enable_metrics=true")


def texts(folder: Path, target: str) -> Iterator[tuple[Path, str]]:
    """Yield the stored file and the new text of each deployment: an error if the target rejects it."""
    for name in _COMPARED if target in SERVING else ("prefill_decode",):
        recipe = write(folder, name)
        done = program.run("render", f"recipe={recipe}", "--to", target, *_OPTIONS)
        text = done.stdout if done.returncode == 0 else done.stderr
        yield STORED / f"{name}.{target}.txt", text.replace(str(folder), "FOLDER")


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    with TemporaryDirectory() as temporary:
        for each in RENDERERS:
            for path, text in texts(Path(temporary), each):
                path.write_text(text)
