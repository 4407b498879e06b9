"""Measure the KV pools of the real engine on the CPU, for the tests of the memory budget.

    python tools/cpu_measurements.py run [NAME …]       start the engine for each case, and store
    python tools/cpu_measurements.py read DIR           store what earlier logs (NAME.log) say

Twenty-two starts, half a minute each on two cores. Free memory of a host wanders: each record has
what the engine itself measured before and after it loaded weights. Results are written to
tests/engine/plan/memory/cpu_measurements.json; cases that are not asked for keep their record.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY)]

from speclaunch.core.files import speclaunch_home  # noqa: E402
from speclaunch.engine.facts.cpu_engine import CpuEngine  # noqa: E402
from speclaunch.engine.facts.weight_files import read_weights  # noqa: E402
from tests.support.engine.plan.memory.cpu_engine import arguments, extract, start  # noqa: E402

OUTPUT = REPOSITORY / "tests" / "engine" / "plan" / "memory" / "cpu_measurements.json"
ENGINE = "0.5.23"
PORT = 30771
DEFAULTS = {"dtype": "float32", "max_running_requests": 4}


def tree(
    algorithm: str, draft: str | None, steps: int = 3, topk: int = 1, tokens: int = 4
) -> dict[str, Any]:
    """The arguments of speculation with a draft."""
    found: dict[str, Any] = {"speculative_algorithm": algorithm}
    if draft is not None:
        found["speculative_draft_model_path"] = draft
    return found | {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }


NGRAM = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}


def case(model: str, fraction: float, **more: Any) -> dict[str, Any]:
    """The arguments of a case, `model_path` being the name of a model."""
    return {"model_path": model, "mem_fraction_static": fraction, **more}


CASES = {
    "none_f10": case("llama", 0.1),
    "none_f02": case("llama", 0.02),
    "none_fp8": case("llama", 0.02, kv_cache_dtype="fp8_e4m3"),
    "none_e5m2": case("llama", 0.02, kv_cache_dtype="fp8_e5m2"),
    "none_bf16": case("llama", 0.02, kv_cache_dtype="bf16"),
    "none_cap": case("llama", 0.3, max_total_tokens=5001),
    "none_page": case("llama", 0.02, page_size=16, max_total_tokens=5001),
    "none_tiny": case("llama", 0.3, max_total_tokens=10),
    "ngram_f02": case("cycle", 0.02, **NGRAM),
    "ngram_cap": case("cycle", 0.3, max_total_tokens=8192, **NGRAM),
    "standalone_f02": case("cycle", 0.02, **tree("STANDALONE", "cycle-draft")),
    "standalone_cap": case(
        "cycle",
        0.3,
        max_total_tokens=9999,
        kv_cache_dtype="bf16",
        **tree("STANDALONE", "cycle-draft", 4, 2, 8),
    ),
    "eagle3_f02": case("llama", 0.02, **tree("EAGLE3", "llama-eagle3", 3, 2, 6)),
    "eagle3_bf16": case("llama", 0.05, kv_cache_dtype="bf16", **tree("EAGLE3", "llama-eagle3")),
    "mtp_f02": case("glm-mtp", 0.02, **tree("EAGLE", None)),
    "mtp_cap": case("glm-mtp", 0.3, max_total_tokens=100000, **tree("NEXTN", None)),
    "big_f10": case("big", 0.1),
    "big_f05": case("big", 0.05),
    "big_f06_standalone": case("big", 0.06, **tree("STANDALONE", "bigdraft")),
    "big_f12_standalone": case("big", 0.12, **tree("STANDALONE", "bigdraft")),
    "none_f0": case("llama", 0.00001),
    "big_fp4": case("llama", 0.02, kv_cache_dtype="fp4_e2m1"),
}
BIG = {
    "big": {"intermediate_size": 4096, "num_hidden_layers": 16, "num_key_value_heads": 4},
    "bigdraft": {"intermediate_size": 2048, "num_hidden_layers": 6, "num_key_value_heads": 8},
}
"""Models whose weights are a visible part of the memory: 1.27 and 0.51 GB, all zeros."""
WRITER = """
import sys, torch
from safetensors.torch import save_file
layers, inner, heads = (int(x) for x in sys.argv[1:4])
hidden, vocabulary, width = 1024, 32000, 128
zeros, ones = torch.zeros, torch.ones
found = {"model.embed_tokens.weight": zeros(vocabulary, hidden), "model.norm.weight": ones(hidden),
         "lm_head.weight": zeros(vocabulary, hidden)}
for i in range(layers):
    p = f"model.layers.{i}."
    found[p + "self_attn.q_proj.weight"] = zeros(hidden, hidden)
    found[p + "self_attn.k_proj.weight"] = zeros(heads * width, hidden)
    found[p + "self_attn.v_proj.weight"] = zeros(heads * width, hidden)
    found[p + "self_attn.o_proj.weight"] = zeros(hidden, hidden)
    found[p + "mlp.gate_proj.weight"] = zeros(inner, hidden)
    found[p + "mlp.up_proj.weight"] = zeros(inner, hidden)
    found[p + "mlp.down_proj.weight"] = zeros(hidden, inner)
    found[p + "input_layernorm.weight"] = ones(hidden)
    found[p + "post_attention_layernorm.weight"] = ones(hidden)
save_file(found, sys.argv[4], metadata={"format": "pt"})
"""


def models(engine: CpuEngine, folder: Path) -> dict[str, Path]:
    """Where each model is; the large ones are made when they are not there."""
    found = {path.name: path for path in engine.models.iterdir() if path.is_dir()}
    small = found["llama"]
    for name, sizes in BIG.items():
        found[name] = folder / name
        if (folder / name / "model.safetensors").is_file():
            continue
        found[name].mkdir(parents=True, exist_ok=True)
        config = json.loads((small / "config.json").read_text()) | sizes
        config |= {"hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 8}
        config["head_dim"] = 128
        (found[name] / "config.json").write_text(json.dumps(config))
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (found[name] / file).write_bytes((small / file).read_bytes())
        words = ("num_hidden_layers", "intermediate_size", "num_key_value_heads")
        subprocess.run(
            [
                str(engine.python),
                "-c",
                WRITER,
                *(str(sizes[word]) for word in words),
                str(found[name] / "model.safetensors"),
            ],
            check=True,
        )
    return found


def described(folder: Path) -> dict[str, Any]:
    """What the tests need of a model: its config, its weights' bytes."""
    weights = read_weights(folder)
    config = json.loads((folder / "config.json").read_text())
    return {"config": config, "weight_bytes": weights.total_bytes}


def store(records: dict[str, Any], where: dict[str, Path]) -> None:
    """Add to what is stored."""
    known = json.loads(OUTPUT.read_text()) if OUTPUT.is_file() else {"cases": {}}
    for name, measured in records.items():
        known["cases"][name] = {"args": DEFAULTS | CASES[name], "measured": measured}
    used = {
        value
        for one in known["cases"].values()
        for key, value in one["args"].items()
        if key.endswith("model_path")
    }
    known |= {"engine": ENGINE, "models": {name: described(where[name]) for name in sorted(used)}}
    known["cases"] = {name: known["cases"][name] for name in CASES if name in known["cases"]}
    OUTPUT.write_text(json.dumps(known, indent=1) + "\n")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the large models are kept")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("run").add_argument("names", nargs="*")
    verbs.add_parser("read").add_argument("logs", type=Path)
    asked = parser.parse_args(words)
    engine = CpuEngine(speclaunch_home())
    with tempfile.TemporaryDirectory() as scratch:
        where = models(engine, asked.folder or Path(scratch))
        if asked.verb == "read":
            logs = {path.stem: path for path in asked.logs.glob("*.log") if path.stem in CASES}
            found = {name: extract(path.read_text(errors="replace")) for name, path in logs.items()}
            store(found, where)
            return 0
        for name in asked.names or CASES:
            line = arguments(where, CASES[name], DEFAULTS)
            log = start(engine, line, PORT, Path(scratch) / "runs" / name)
            store({name: extract(log)}, where)
            print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
