"""Writes `models/acceptance.json`: acceptance lengths and speed-ups that others measured.

    python tools/published_acceptance.py format            write it in its form
    python tools/published_acceptance.py specforge FILE    replace SpecForge's rows: its data.json
    python tools/published_acceptance.py inferencex DIR    InferenceX's: golden_al_distribution/

Both sources are read from a clone; the other rows are written by hand, each with its source. The
file has sources with their conditions, then the rows of each target; a row may override a condition
of its source. `settings` are [num_steps, eagle_topk, num_draft_tokens] in SGLang's terms; `length`
and `speedup` have one value a setting.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import yaml

TOOLS = Path(__file__).resolve().parent
sys.path[:0] = [str(TOOLS.parent), str(TOOLS)]

from speclaunch.core.files import replace_file  # noqa: E402

FILE = TOOLS.parent / "models" / "acceptance.json"
PLAIN = "Wihtout EAGLE3"
"""SpecForge's name of the run without a draft, as it spells it."""
NAMES = {
    "lmsys/SGLang-EAGLE3-Qwen3-30B-A3B-Instruct-2507-SpecForge": "-Nex",
    "lmsys/SGLang-EAGLE3-Qwen3-235B-A22B-Instruct-2507-SpecForge": "-Meituan",
}
"""What the published names have in addition (docs/community_resources/specbundle.md)."""
RENAMED = {
    "lmsys/SGLang-EAGLE3-Qwen3-Next-80B-A3B-Instruct-FP8-SpecForge":
        "lmsys/SGLang-EAGLE3-Qwen3-Next-80B-A3B-Instruct-FP8-perfect-blend-regenerated",
    "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-Specforge":
        "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge",
    "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-Spec for ge":
        "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge",
}  # fmt: skip
ORGANIZATIONS = {"Qwen": "Qwen", "Kimi": "moonshotai", "Ling": "inclusionAI", "Llama": "meta-llama"}
GOLDEN = {
    "dsv4_mtp": ("deepseek-ai/DeepSeek-V4-Pro", None, "MTP"),
    "glm5.2_mtp": ("zai-org/GLM-5.2-FP8", None, "MTP"),
    "qwen3.5_mtp": ("nvidia/Qwen3.5-397B-A17B-NVFP4", None, "MTP"),
    "kimik2.5_eagle3": ("nvidia/Kimi-K2.5-NVFP4", "lightseekorg/kimi-k2.5-eagle3-mla", "EAGLE3"),
    "kimik3_dspark": ("moonshotai/Kimi-K3", "Inferact/Kimi-K3-DSpark", "DSPARK"),
    "kimik3_dspark_probabilistic_sample_method_block_rejection_sample_method":
        ("moonshotai/Kimi-K3", "Inferact/Kimi-K3-DSpark", "DSPARK"),
    "dsv4-pro-0813-dspark":
        ("deepseek-ai/DeepSeek-V4-Pro-0813", "deepseek-ai/DeepSeek-V4-Pro-DSpark", "DSPARK"),
    "minimaxm3_eagle3": ("MiniMaxAI/MiniMax-M3", "Inferact/MiniMax-M3-EAGLE3", "EAGLE3"),
    "minimaxm3_eagle3_gqa": ("MiniMaxAI/MiniMax-M3", "Inferact/MiniMax-M3-EAGLE3-GQA", "EAGLE3"),
}  # fmt: skip
"""Target, draft and algorithm of a curve: from its header and its collector
(benchmarks/single_node/speedbench/)."""
BLOCKS = ("DFLASH", "DSPARK")


def specforge(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of SpecForge's grid; throughput is a multiple of the plain run's."""
    found: dict[str, list[dict[str, Any]]] = {}
    for short, benchmarks in json.loads(path.read_text()).items():
        target = f"{next(o for n, o in ORGANIZATIONS.items() if short.startswith(n))}/{short}"
        rows: dict[str, dict[str, Any]] = {}
        for name, measured in benchmarks.items():
            for at in sorted(measured["results"], key=lambda at: (at["steps"], at["topk"])):
                setting = [at["steps"], at["topk"], at["num_draft_tokens"]]
                plain = next(m for m in at["metrics"] if m["Name"] == PLAIN)["output_throughput"]
                for one in at["metrics"]:
                    if one["Name"] == PLAIN:
                        continue
                    named = one["Name"]
                    draft = RENAMED.get(named, named + NAMES.get(named, ""))
                    row = rows.setdefault(draft, {
                        "draft": draft, "algorithm": "EAGLE3", "source": "specforge",
                        "batch_size": at["batch_size"], "settings": [], "length": {}, "speedup": {},
                    })  # fmt: skip
                    if draft != named and "named" not in row:
                        row["named"] = named
                    if setting not in row["settings"]:
                        row["settings"].append(setting)
                    row["length"].setdefault(name, []).append(round(one["accept_length"], 3))
                    row["speedup"].setdefault(name, []).append(
                        round(one["output_throughput"] / plain, 3)
                    )
        found[target] = list(rows.values())
    return found


def inferencex(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of InferenceX's curves, one a mode of the target."""
    found: dict[str, list[dict[str, Any]]] = {}
    for stem, (target, draft, algorithm) in GOLDEN.items():
        curves = yaml.safe_load((folder / f"{stem}.yaml").read_text())
        for modes in curves.values():
            for mode, curve in modes.items():
                settings = [
                    [None, None, k + 1] if algorithm in BLOCKS else [k, 1, k + 1] for k in curve
                ]
                row = {
                    "draft": draft, "algorithm": algorithm, "source": "inferencex",
                    "place": f"golden_al_distribution/{stem}.yaml",
                    "mode": {"thinking_on": "thinking", "thinking_off": "non-thinking"}[mode],
                    **CONDITIONS.get((stem, mode), CONDITIONS.get((stem, ""), {})),
                    "settings": settings, "length": {"SPEED-Bench coding": list(curve.values())},
                }  # fmt: skip
                found.setdefault(target, []).append(row)
    return found


CONDITIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("kimik2.5_eagle3", "thinking_off"): {"temperature": 0.6},
    ("qwen3.5_mtp", "thinking_on"): {"temperature": 0.6},
    ("qwen3.5_mtp", "thinking_off"): {"temperature": 0.7},
    ("kimik3_dspark_probabilistic_sample_method_block_rejection_sample_method", ""): {
        "note": "draft_sample_method=probabilistic, rejection_sample_method=block"
    },
    ("dsv4-pro-0813-dspark", ""): {
        "note": "draft_sample_method=probabilistic; the draft is part of the checkpoint"
    },
}
"""What the header of a curve states besides temperature 1, the usual one."""


def factors(measured: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return the accepted draft tokens on each benchmark, relative to the mean of the grid's seven.

    Fitted as (level of a draft at a setting) x (factor of the benchmark), over chains and blocks
    with at least two benchmarks. A benchmark without a link to the grid's has no factor.
    """
    rows = [r for some in measured.values() for r in some if r.get("length")]
    groups = [
        {n: math.log(values[i] - 1) for n, values in r["length"].items()}
        for r in rows
        for i, (_, topk, tokens) in enumerate(r.get("settings", [[None, None, None]]))
        if tokens is not None and (topk or 1) == 1 and len(r["length"]) > 1
    ]
    grid = max((list(r["length"]) for r in rows if r["source"] == "specforge"), key=len)
    linked = set(grid)
    while more := {n for g in groups if linked & g.keys() for n in g} - linked:
        linked |= more
    groups = [g for g in groups if linked & g.keys()]
    fitted = dict.fromkeys(sorted(linked), 0.0)
    for _ in range(100):
        levels = [sum(v - fitted[n] for n, v in g.items()) / len(g) for g in groups]
        for name in fitted:
            rest = [g[name] - level for g, level in zip(groups, levels, strict=True) if name in g]
            fitted[name] = sum(rest) / len(rest)
        middle = sum(fitted[n] for n in grid) / len(grid)
        fitted = {n: v - middle for n, v in fitted.items()}
    return {n: round(math.exp(v), 2) for n, v in fitted.items()}


def text_of(document: dict[str, Any]) -> str:
    """Return the text of the file: a source and a row a line."""

    def block(name: str, lines: list[str]) -> str:
        return f' "{name}": {{\n' + ",\n".join(lines) + "\n }"

    dump = json.JSONEncoder(ensure_ascii=False).encode
    sources = [f"  {dump(n)}: {dump(s)}" for n, s in sorted(document["sources"].items())]
    missing = [f"  {dump(n)}: {dump(w)}" for n, w in sorted(document["not_in_the_index"].items())]
    rows = []
    for target, some in sorted(document["measured"].items()):
        lines = ",\n".join(f"   {dump(row)}" for row in some)
        rows.append(f"  {dump(target)}: [\n{lines}\n  ]")
    return (
        '{\n "format": 1,\n'
        + f' "factors": {dump(document["factors"])},\n'
        + ",\n".join(
            [
                block("sources", sources),
                block("not_in_the_index", missing),
                block("measured", rows),
            ]
        )
        + "\n}\n"
    )


def main(argv: list[str]) -> int:
    document = json.loads(FILE.read_text())
    measured = document["measured"]
    if argv[:1] == ["specforge"]:
        new = specforge(Path(argv[1]))
    elif argv[:1] == ["inferencex"]:
        new = inferencex(Path(argv[1]))
    elif argv == ["format"]:
        new = {}
    else:
        print(__doc__)
        return 2
    for target in {*measured, *new}:
        old = [r for r in measured.get(target, ()) if not new or r["source"] != argv[0]]
        measured[target] = [*new.get(target, ()), *old]
    document["measured"] = {target: rows for target, rows in measured.items() if rows}
    document["factors"] = factors(document["measured"])
    replace_file(FILE, text_of(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
