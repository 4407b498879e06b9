"""Whatever lies in a directory, reading it ends soon, and with facts or with a reason."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclaunch.core.reads import safe_json
from speclaunch.engine.facts.facts import Checkpoint, UnknownFact
from speclaunch.engine.facts.find_checkpoint import Sources, find_checkpoint
from speclaunch.engine.facts.read_checkpoint import from_config, read_checkpoint
from speclaunch.engine.facts.tensors import TensorFacts

OMNI: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "dtype": "bfloat16",
    "vision_config": {"depth": 27, "hidden_size": 1152},
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"model.layers.0": {"quant_algo": "NVFP4"}},
    },
    "text_config": {
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "vocab_size": 248320,
        "num_experts": 256,
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7},
        "sliding_window": None,
    },
    "thinker_config": None,
    "draft_vocab_size": 32000,
    "target_hidden_size": 2048,
    "eagle_config": {
        "eagle_aux_hidden_state_layer_ids": [1, 19, 36],
        "use_aux_hidden_state": True,
    },
    "dflash_config": {"block_size": 16, "target_layer_ids": [1, 9, 17]},
    "mtp_config": {"n_layers": 2},
}
"""Every key that is read, in one config."""
INDEX = {
    "metadata": {"total_size": 1 << 40},
    "weight_map": {
        "model.layers.40.eh_proj.weight": "model-1.safetensors",
        "model.d2t": "model-2.safetensors",
    },
}
TOKENIZER = {
    "model": {"vocab": {"a": 0, "b": 1}},
    "added_tokens": [{"content": "<s>", "id": 2}],
}
TOKENIZER_CONFIG = {
    "added_tokens_decoder": {"3": {"content": "</s>"}},
    "eos_token": "</s>",
    "additional_special_tokens": ["<s>"],
}
FILES: dict[str, Any] = {
    "config.json": OMNI,
    "model.safetensors.index.json": INDEX,
    "hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}},
    "tokenizer.json": TOKENIZER,
    "tokenizer_config.json": TOKENIZER_CONFIG,
    "special_tokens_map.json": {"eos_token": {"content": "</s>"}},
}
HINTS = get_type_hints(Checkpoint, localns={"TensorFacts": TensorFacts})


def fits(value: object, hint: Any) -> bool:
    """Whether a value has the type that the dataclass declares."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in get_args(hint))
    if origin is tuple:
        inner = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if inner[-1] is ...:
            return all(fits(item, inner[0]) for item in value)
        return len(value) == len(inner) and all(map(fits, value, inner))
    if hint is int:
        return type(value) is int and -1 <= value <= safe_json.MOST_BYTES
    return isinstance(value, origin or hint)


def sound(found: object) -> bool:
    """Facts whose every field is of its type, or a reason."""
    if isinstance(found, UnknownFact):
        return bool(found.what and found.why)
    assert isinstance(found, Checkpoint)
    for name in found.__struct_fields__:
        assert fits(getattr(found, name), HINTS[name]), name
    hash((found.architectures, found.aux_hidden_layers, found.missing_files))
    return True


def test_the_example_is_read_whole() -> None:
    found = from_config("m", OMNI)
    assert sound(found)
    assert (found.mtp_layers, found.block_size, found.aux_hidden_layers) == (1, 16, (1, 9, 17))
    assert (found.quantization, found.context_lengths) == ("modelopt_mixed", (1048576, 262144))
    assert found.is_multimodal
    assert found.is_moe
    assert not fits("8", HINTS["hidden_size"])
    assert not fits((1, "2"), HINTS["aux_hidden_layers"])


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["bfloat16", "yarn", "llama3", "fp8", "modelopt", "[]", "\0", "9" * 5000])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.sampled_from(sorted(OMNI)), inner, max_size=3)
    ),
    max_leaves=8,
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of a document is."""
    yield at
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*at, key))


def put(document: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    changed = copy.copy(document)
    changed[at[0]] = put(document[at[0]], at[1:], value)
    return changed


@pytest.mark.thorough
@settings(max_examples=400, deadline=None)
@given(JSON)
def test_any_object_is_a_config(value: Any) -> None:
    if isinstance(value, dict):
        assert sound(from_config("m", value))


@st.composite
def changed_files(draw: Callable[..., Any]) -> dict[str, Any]:
    """The files of a checkpoint, with one to four values in them replaced."""
    files = dict(FILES)
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(files)))
        at = draw(st.sampled_from(list(paths(files[name]))))
        files[name] = put(files[name], at, draw(JSON))
    return files


@pytest.mark.thorough
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changed_files())
def test_any_value_may_be_replaced(files: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name, value in files.items():
            Path(directory, name).write_text(json.dumps(value))
        assert sound(read_checkpoint("m", Path(directory), tokenizer=True))


@pytest.mark.thorough
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(FILES)),
    st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4)), min_size=1, max_size=5),
)
def test_any_bytes_may_be_replaced(name: str, cuts: list[tuple[float, bytes]]) -> None:
    data = {file: json.dumps(value).encode() for file, value in FILES.items()}
    for at, instead in cuts:
        start = int(at * len(data[name]))
        data[name] = data[name][:start] + instead + data[name][start + 1 :]
    with tempfile.TemporaryDirectory() as directory:
        for file, content in data.items():
            Path(directory, file).write_bytes(content)
        assert sound(read_checkpoint("m", Path(directory), tokenizer=True))


ODD_FILES: dict[str, Callable[[Path], Any]] = {
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "nowhere": lambda path: path.symlink_to("nowhere"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "empty": lambda path: path.write_bytes(b""),
    "latin": lambda path: path.write_bytes(b'{"a": "\xe9"}'),
    "deep": lambda path: path.write_bytes(b'{"a":' * 100_000),
    "deep list": lambda path: path.write_bytes(b"[" * 1_000_000),
    "digits": lambda path: path.write_bytes(b'{"vocab_size": ' + b"9" * 100_000 + b"}"),
    "large": lambda path: path.write_bytes(b'{"a": "' + b"x" * (9 << 20) + b'"}'),
    "list": lambda path: path.write_bytes(b"[]"),
    "marked": lambda path: path.write_bytes(b'\xef\xbb\xbf{"hidden_size": 1}'),
}


@pytest.mark.thorough
@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ODD_FILES)
@pytest.mark.parametrize("name", [*FILES, "model.safetensors", "vocab.json"])
def test_files_of_every_kind(tmp_path: Path, name: str, kind: str) -> None:
    for file, value in FILES.items():
        (tmp_path / file).write_text(json.dumps(value))
    if name == "model.safetensors":
        (tmp_path / "model.safetensors.index.json").unlink()
    if name == "vocab.json":
        (tmp_path / "tokenizer.json").unlink()
    (tmp_path / name).unlink(missing_ok=True)
    ODD_FILES[kind](tmp_path / name)
    found = read_checkpoint("m", tmp_path, tokenizer=True)
    assert sound(found)
    if name == "config.json" and kind != "marked":
        assert isinstance(found, UnknownFact)
    if name != "config.json":
        assert isinstance(found, Checkpoint)
        assert found.hidden_size == 2048
    assert sound(find_checkpoint(str(tmp_path), environment={"HF_HUB_CACHE": "/nonexistent"}))


def test_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")

    def refuse(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        found = read_checkpoint("m", tmp_path)
        assert isinstance(found, UnknownFact)
        assert "Permission denied" in found.why
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_file", refuse)
        patched.setattr(Path, "is_dir", refuse)
        assert sound(read_checkpoint("m", tmp_path, tokenizer=True))
        found = find_checkpoint("org/m", Sources((tmp_path,)), environment={})
        assert isinstance(found, UnknownFact)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_the_system_does_not_let_us_read(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m").chmod(0)
    try:
        assert isinstance(find_checkpoint("m", Sources((tmp_path,)), environment={}), UnknownFact)
        assert isinstance(read_checkpoint("m", tmp_path / "m"), UnknownFact)
    finally:
        (tmp_path / "m").chmod(0o700)
