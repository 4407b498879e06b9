"""The cases of the rules (tests/checks/rules/cases) as files: a recipe, a script or a compose file each,
with the checkpoints that a case tells as directories."""

from __future__ import annotations

import json
import shlex
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CHECKPOINTS = "models/cases"
WIDTHS = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
LARGEST_BYTES = 1 << 24
"""A larger file of weights is not written."""

_CONFIG_KEYS = {
    "dtype": "torch_dtype",
    "context_length": "max_position_embeddings",
    "mtp_layers": "num_nextn_predict_layers",
}
_AS_THEY_ARE = (
    *("architectures", "model_type", "hidden_size", "vocab_size", "draft_vocab_size", "head_dim"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "kv_lora_rank"),
    *("sliding_window", "target_hidden_size", "block_size"),
)


def write_cases(cases: Path, folder: Path, *, every: int = 1) -> int:
    """Write every n-th case of the files in `cases` below `folder`; how many that were."""
    number = count = 0
    for path in sorted(cases.glob("*.yaml")):
        text = yaml.load(path.read_text(), LOADER)
        for name, said in text["cases"].items():
            number += 1
            if number % every == 0:
                _write(f"{text['rule']}-{name}", said, folder)
                count += 1
    return count


def _write(name: str, said: Mapping[str, Any], folder: Path) -> None:
    args = dict(said.get("args", {}))
    for role, key in (("target", "model_path"), ("draft", "speculative_draft_model_path")):
        if role in said:
            args[key] = f"{CHECKPOINTS}/{name}-{role}"
            _write_checkpoint(said[role], folder / args[key])
    home = folder / "cases" / name[:4]
    home.mkdir(parents=True, exist_ok=True)
    env = {key: str(value) for key, value in said.get("env", {}).items()}
    if "slime" in said:
        text = f"#!/bin/bash\nARGS=(\n{said['slime']}\n)\npython3 train.py ${{ARGS[@]}}\n"
        (home / f"{name}.sh").write_text(text)
    elif "argv" in said:
        _write_command(home / name, said, env)
    elif "together" in said:
        for number, one in enumerate(said["together"]):
            _write_recipe(
                home / f"{name}-{number}.yaml", said, one.get("args", {}), one.get("env", {})
            )
    else:
        _write_recipe(home / f"{name}.yaml", said, args, env)


def _write_command(stem: Path, said: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """A script, and a container whose image tells the version."""
    before = "".join(f"{key}={shlex.quote(value)} " for key, value in env.items())
    command = f"python3 -m sglang.launch_server {said['argv']}"
    stem.with_suffix(".sh").write_text(f"#!/bin/bash\n{before}{command}\n")
    service = {
        "image": f"lmsysorg/sglang:v{said['engine']}",
        "environment": dict(env),
        "command": command,
    }
    document = {"services": {"sglang": service}}
    folder = stem.with_suffix(".d")
    folder.mkdir(exist_ok=True)
    (folder / "docker-compose.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def _write_recipe(
    path: Path, said: Mapping[str, Any], args: Mapping[str, Any], env: Mapping[str, Any]
) -> None:
    document: dict[str, Any] = {"engine": {"version": str(said["engine"])}}
    if env:
        document["engine"]["env"] = {key: str(value) for key, value in env.items()}
    if isinstance(said.get("hardware"), str):
        document["hardware"] = {"name": said["hardware"]}
    document["args"] = {name: _value(value) for name, value in args.items()}
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _value(said: Any) -> Any:
    """`{env: NAME, is: …, default: TEXT}` is written as Hydra reads it."""
    if not isinstance(said, dict) or "env" not in said:
        return said
    default = f",{said['default']}" if "default" in said else ""
    return f"${{oc.env:{said['env']}{default}}}"


def _write_checkpoint(said: Mapping[str, Any], folder: Path) -> None:
    config = {key: said[key] for key in _AS_THEY_ARE if key in said}
    config |= {written: said[key] for key, written in _CONFIG_KEYS.items() if key in said}
    if said.get("quantization"):
        config["quantization_config"] = {"quant_method": said["quantization"]}
    if "quantization_config" in said:
        config["quantization_config"] = said["quantization_config"]
    if said.get("aux_hidden_layers"):
        layers = list(said["aux_hidden_layers"])
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": layers}
    if said.get("is_moe"):
        config.setdefault("num_experts", 8)
    if said.get("is_multimodal"):
        config["vision_config"] = {"hidden_size": 8}
    config |= said.get("config", {}) | said.get("raw", {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if said.get("weight_bytes"):
        index = {"metadata": {"total_size": said["weight_bytes"]}, "weight_map": {}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    names = said.get("tensors", {}).get("names", {})
    if names and "unread" not in said["tensors"]:
        _write_weights(names, folder / "model.safetensors")


def _write_weights(names: Mapping[str, str], path: Path) -> None:
    """A safetensors file whose numbers are all zero: a header, and a hole behind it."""
    header: dict[str, Any] = {}
    end = 0
    for name, dtype, shape in _tensors(names):
        size = WIDTHS.get(dtype, 1)
        for one in shape:
            size *= one
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    if end > LARGEST_BYTES:
        return
    head = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + end)


def _tensors(names: Mapping[str, str]) -> Iterator[tuple[str, str, list[int]]]:
    for name, text in names.items():
        dtype, _, shape = text.partition(" ")
        yield name, dtype, [int(one) for one in shape.split("x") if one]


def literals(sources: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Texts in test modules that look as if lint read them: a name for the file, and the text."""
    import ast

    marks = ("sglang.launch_server", "sglang serve", "--sglang-", "args:\n", "defaults:\n")
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            text = node.value
            if not any(mark in text for mark in marks) or node.col_offset == 0:
                continue
            yaml_like = any(one in text for one in ("services:", "kind:", "args:\n", "defaults:\n"))
            ending = "md" if "```" in text else "yaml" if yaml_like else "sh"
            yield f"{source.stem}-{node.lineno}-{node.col_offset}.{ending}", text
