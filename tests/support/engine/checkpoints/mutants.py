"""Ways to break the tiny drafts, and changes that break nothing.

Each is a function of a checkpoint in memory. They are made for what happens to checkpoints, not
for what rules look at: campaigns/checkpoint_mutants.py runs each on the real engine.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .safetensors_bytes import Model, Tensor

Change = Callable[[Model], None]


@dataclass(frozen=True)
class Base:
    """A healthy pair. `draft` None: the target drafts for itself."""

    algorithm: str
    target: str
    draft: str | None

    @property
    def changed(self) -> str:
        """The checkpoint that is changed."""
        return self.draft or self.target


BASES = {
    "eagle3": Base("EAGLE3", "cycle-8", "llama-eagle3"),
    "eagle": Base("EAGLE", "cycle-8", "llama-eagle"),
    "standalone": Base("STANDALONE", "cycle", "cycle-draft-5"),
    "mtp": Base("EAGLE", "glm-mtp", None),
}
MTP_LAYER = "model.layers.2."


@dataclass(frozen=True)
class Mutant:
    """One changed checkpoint. `harmless`: it is as good as before."""

    base: str
    name: str
    kind: str
    change: Change
    harmless: bool = False

    @property
    def key(self) -> str:
        return f"{self.base}/{self.name}"


def mutants(base: str, model: Model) -> Iterator[Mutant]:
    """All ways to break the checkpoint of `base`, as it is healthy in `model`."""
    for kind, name, change in _each_tensor(base, model):
        yield Mutant(base, name, kind, change)
    for kind, name, change in [*_whole(base, model), *_configs(base), *_OWN[base](model)]:
        yield Mutant(base, name, kind, change)


# ------------------------------------------------------------------------------- single tensors


def _mutated(base: str, model: Model) -> list[str]:
    """The tensors of the draft; of the experts, which are alike, two."""
    names = list(model.tensors)
    if base == "mtp":
        names = [name for name in names if name.startswith(MTP_LAYER)]
        names = [name for name in names if "experts.2" not in name and "experts.3" not in name]
    return names


def _each_tensor(base: str, model: Model) -> Iterator[tuple[str, str, Change]]:
    for place, name in enumerate(_mutated(base, model)):
        tensor = model.tensors[name]
        yield "drop", f"drop:{name}", _drop(name)
        yield "rename", f"rename:{name}", _rename(name, _other_name(name, place))
        yield "shape", f"fewer-rows:{name}", _replace(name, _fewer_rows)
        if tensor.dtype == "F32":
            yield "zero", f"zero:{name}", _replace(name, _zero)
            yield "nan", f"nan:{name}", _replace(name, _nan)
        if len(tensor.shape) == 2:
            yield "transpose", f"transpose:{name}", _replace(name, Tensor.transposed)
            yield "reorder", f"rows-shuffled:{name}", _replace(name, _shuffled)
            yield "shape", f"flattened:{name}", _replace(name, _flat)
        elif len(tensor.shape) == 1 and place % 2:
            yield "shape", f"more-rows:{name}", _replace(name, _more_rows)


def _other_name(name: str, place: int) -> str:
    """A name as another exporter would write it."""
    ways: list[Callable[[str], str]] = [
        lambda text: "draft." + text,
        lambda text: text.replace("proj", "projection").replace("norm", "layer_norm"),
        lambda text: text.replace("self_attn", "attention").replace("mlp", "feed_forward"),
        lambda text: text.replace(".weight", ".w"),
        lambda text: "module.model." + text,
        lambda text: text.replace("layers.", "blocks.").replace("midlayer", "middle"),
    ]
    for turn in range(len(ways)):
        other = ways[(place + turn) % len(ways)](name)
        if other != name:
            return other
    raise AssertionError(name)


def _drop(name: str) -> Change:
    def change(model: Model) -> None:
        del model.tensors[name]

    return change


def _rename(old: str, new: str) -> Change:
    def change(model: Model) -> None:
        model.tensors = {new if key == old else key: v for key, v in model.tensors.items()}

    return change


def _replace(name: str, other: Callable[[Tensor], Tensor]) -> Change:
    def change(model: Model) -> None:
        model.tensors[name] = other(model.tensors[name])

    return change


def _zero(tensor: Tensor) -> Tensor:
    return Tensor(tensor.dtype, list(tensor.shape), bytes(len(tensor.data)))


def _nan(tensor: Tensor) -> Tensor:
    """One number in the middle that is none."""
    numbers = tensor.numbers()
    numbers[len(numbers) // 2] = math.nan
    return tensor.with_numbers(numbers)


def _fewer_rows(tensor: Tensor) -> Tensor:
    return tensor.of_rows(tensor.rows()[:-1])


def _more_rows(tensor: Tensor) -> Tensor:
    rows = tensor.rows()
    return tensor.of_rows([*rows, rows[-1]])


def _flat(tensor: Tensor) -> Tensor:
    return Tensor(tensor.dtype, [tensor.elements], tensor.data)


def _shuffled(tensor: Tensor) -> Tensor:
    rows = tensor.rows()
    random.Random(len(rows)).shuffle(rows)
    return tensor.of_rows(rows)


# ------------------------------------------------------------------------- the whole checkpoint


def _whole(base: str, model: Model) -> Iterator[tuple[str, str, Change]]:
    names = _mutated(base, model)
    for prefix in ("base_model.model.", "_orig_mod.", "draft_model.", "eagle_module."):
        yield "rename", f"prefix:{prefix}", _prefixed(names, prefix)
    yield "rename", "layers-from-another", _renamed(names, _next_layer(base))
    yield "zero", "zero-all", _of_all(names, _zero)
    yield "nan", "nan-all", _of_all(names, _nan)
    yield "transpose", "transpose-all", _of_all(names, _transposed_if)
    yield "reorder", "all-shuffled", _of_all(names, _shuffled_if)
    matrices = [name for name in names if len(model.tensors[name].shape) == 2]
    for part in ("attn", "mlp", "norm"):
        some = [name for name in names if part in name]
        if some:
            yield "drop", f"drop-all:{part}", _without(some)
            yield "zero", f"zero-all:{part}", _of_all(some, _zero)
    for share in (2, 3, 4):
        yield "drop", f"drop-each-{share}th", _without(names[::share])
        yield "zero", f"zero-each-{share}th", _of_all(names[1::share], _zero)
    yield "drop", "drop-all", _without(names)
    yield "drop", "drop-matrices", _without(matrices)
    yield "broken file", "cut-in-half", _bytes(lambda data: data[: len(data) // 2])
    yield "broken file", "cut-at-the-end", _bytes(lambda data: data[:-64])
    yield "broken file", "header-cut", _bytes(lambda data: data[:100])
    yield "broken file", "empty", _bytes(lambda data: b"")
    yield "broken file", "zeros-behind-header", _bytes(_zeros_behind)
    yield "broken file", "pointer", _bytes(lambda data: b"version https://git-lfs.github.com\n")
    yield "broken file", "shard-missing", _shard_missing(names)


def _prefixed(names: list[str], prefix: str) -> Change:
    return _renamed(names, lambda name: prefix + name)


def _renamed(names: list[str], other: Callable[[str], str]) -> Change:
    def change(model: Model) -> None:
        for name in names:
            if other(name) != name:
                _rename(name, other(name))(model)

    return change


def _next_layer(base: str) -> Callable[[str], str]:
    def other(name: str) -> str:
        if base == "mtp":
            return name.replace("layers.2.", "layers.3.")
        return name.replace("layers.0.", "layers.1.").replace("midlayer.", "layers.1.")

    return other


def _of_all(names: list[str], other: Callable[[Tensor], Tensor]) -> Change:
    def change(model: Model) -> None:
        for name in names:
            if model.tensors[name].dtype == "F32":
                model.tensors[name] = other(model.tensors[name])

    return change


def _transposed_if(tensor: Tensor) -> Tensor:
    return tensor.transposed() if len(tensor.shape) == 2 else tensor


def _shuffled_if(tensor: Tensor) -> Tensor:
    return _shuffled(tensor) if len(tensor.shape) == 2 else tensor


def _without(names: list[str]) -> Change:
    def change(model: Model) -> None:
        for name in names:
            del model.tensors[name]

    return change


def _bytes(other: Callable[[bytes], bytes]) -> Change:
    def change(model: Model) -> None:
        model.after = other

    return change


def _zeros_behind(data: bytes) -> bytes:
    length = 8 + int.from_bytes(data[:8], "little")
    return data[:length] + bytes(len(data) - length)


def _shard_missing(names: list[str]) -> Change:
    def change(model: Model) -> None:
        kept = [name for name in model.tensors if name not in names[: len(names) // 2]]
        model.shards = [kept]
        model.shard_name = "model-{:05}-of-00002.safetensors"
        lost = dict.fromkeys(names[: len(names) // 2], "model-00002-of-00002.safetensors")
        model.index_extra = lost

    return change


# ------------------------------------------------------------------------------------- configs


def _configs(base: str) -> Iterator[tuple[str, str, Change]]:
    values: dict[str, tuple[object, ...]] = {
        "hidden_size": (32, 128),
        "num_attention_heads": (2, 8),
        "num_key_value_heads": (1, 4),
        "head_dim": (8, 32),
        "intermediate_size": (64, 256),
        "vocab_size": (256, 1024),
        "num_hidden_layers": (3, 4) if base == "mtp" else (0, 2, 3),
    }
    for key, others in values.items():
        for value in others:
            yield "config", f"{key}={value}", _set(**{key: value})


def _set(**values: object) -> Change:
    def change(model: Model) -> None:
        model.config |= values

    return change


def _eagle3(model: Model) -> Iterator[tuple[str, str, Change]]:
    known = 448
    for name, other in {
        "absolute": lambda ids: [i + d for i, d in enumerate(ids)],
        "zero": lambda ids: [0] * len(ids),
        "negated": lambda ids: [-d for d in ids],
        "shifted-by-one": lambda ids: [d + 1 for d in ids],
        "shifted-by-many": lambda ids: [d + 40 for d in ids],
        "out-of-range": lambda ids: [d + 4096 for d in ids],
        "below-zero": lambda ids: [d - 4096 for d in ids],
        "last-out-of-range": lambda ids: [*ids[:-1], ids[-1] + 500],
        "reversed": lambda ids: ids[::-1],
        "shuffled": lambda ids: random.Random(1).sample(ids, len(ids)),
        "halves-swapped": lambda ids: ids[len(ids) // 2 :] + ids[: len(ids) // 2],
        "all-the-same-token": lambda ids: [100 - i for i in range(len(ids))],
        "another-draft's": lambda ids: sorted(
            token - i
            for i, token in enumerate(sorted(random.Random(2).sample(range(8, 512), len(ids))))
        ),
    }.items():
        yield "token map", f"d2t-{name}", _replace("d2t", _with(other))
    yield "token map", "d2t-of-other-length", _replace("d2t", _fewer_rows)
    yield "token map", "d2t-of-half", _replace("d2t", lambda one: one.of_rows(one.rows()[:224]))
    yield "other vocabulary", "head-of-other-tokens", _replace("lm_head.weight", _rolled)
    yield "other vocabulary", "head-and-map-of-less", _smaller_vocabulary
    yield "config", "draft_vocab_size-missing", _set(draft_vocab_size=None)
    for size in (known - 64, known + 32, 512, 64):
        yield "config", f"draft_vocab_size={size}", _set(draft_vocab_size=size)
    yield "config", "tied", _set(tie_word_embeddings=True)
    for count in (1, 2, 4, 5):
        yield "layer ids", f"fc-of-{count}", _replace("fc.weight", _columns(64 * count))
    for layers in ([1], [1, 2], [1, 2, 3, 4], [1, 5, 20], [6, 7, 8]):
        ids = {"eagle_aux_hidden_state_layer_ids": layers, "use_aux_hidden_state": True}
        yield "layer ids", f"layers={layers}", _set(eagle_config=ids)
    unused = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": False}
    yield "layer ids", "no-aux-hidden-state", _set(eagle_config=unused)
    yield "config", "target_hidden_size=128", _set(target_hidden_size=128)
    yield "config", "norm_before_fc", _set(norm_before_fc=True)
    for name in ("LlamaForCausalLM", "LlamaForCausalLMEagle"):
        yield "config", f"class={name}", _set(architectures=[name])


def _eagle(model: Model) -> Iterator[tuple[str, str, Change]]:
    yield "layer ids", "fc-of-1", _replace("fc.weight", _columns(64))
    yield "layer ids", "fc-of-3", _replace("fc.weight", _columns(192))
    yield "reorder", "fc-halves-swapped", _replace("fc.weight", _halves_swapped)
    for name in ("LlamaForCausalLM", "LlamaForCausalLMEagle3"):
        yield "config", f"class={name}", _set(architectures=[name])


def _standalone(model: Model) -> Iterator[tuple[str, str, Change]]:
    yield "other vocabulary", "permuted", _permuted
    yield "other vocabulary", "permuted-tokenizer-left", _permuted_rows
    yield "other vocabulary", "fewer-tokens", _fewer_tokens
    yield "config", "tied", _set(tie_word_embeddings=True)
    yield "config", "rope_theta=1", _set(rope_theta=1.0)
    yield "config", "class=LlamaForCausalLMEagle", _set(architectures=["LlamaForCausalLMEagle"])


def _mtp(model: Model) -> Iterator[tuple[str, str, Change]]:
    yield (
        "reorder",
        "eh_proj-halves-swapped",
        _replace(MTP_LAYER + "eh_proj.weight", _halves_swapped),
    )
    for size in (0, 2):
        yield "config", f"num_nextn_predict_layers={size}", _set(num_nextn_predict_layers=size)
    for size in (2, 8):
        yield "config", f"n_routed_experts={size}", _set(n_routed_experts=size)
    yield "config", "moe_intermediate_size=64", _set(moe_intermediate_size=64)
    yield "config", "n_shared_experts=2", _set(n_shared_experts=2)
    names = [name for name in model.tensors if name.startswith(MTP_LAYER)]
    yield (
        "rename",
        "as-mtp",
        _renamed(names, lambda name: name.replace("model.layers.2.", "mtp.layers.0.")),
    )
    yield "rename", "one-layer-up", _renamed(names, lambda name: name.replace("rs.2.", "rs.1."))


_OWN = {"eagle3": _eagle3, "eagle": _eagle, "standalone": _standalone, "mtp": _mtp}


def _with(other: Callable[[list[int]], list[int]]) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.with_numbers(other(tensor.numbers()))


def _rolled(tensor: Tensor) -> Tensor:
    rows = tensor.rows()
    return tensor.of_rows(rows[7:] + rows[:7])


def _columns(wanted: int) -> Callable[[Tensor], Tensor]:
    """`fc` for another number of hidden states: cut, or repeated."""

    def other(tensor: Tensor) -> Tensor:
        rows = [(row * 4)[: wanted * tensor.width] for row in tensor.rows()]
        return Tensor(tensor.dtype, [tensor.shape[0], wanted], b"".join(rows))

    return other


def _halves_swapped(tensor: Tensor) -> Tensor:
    rows = tensor.rows()
    half = len(rows[0]) // 2
    return tensor.of_rows([row[half:] + row[:half] for row in rows])


def _smaller_vocabulary(model: Model) -> None:
    """Head and maps of 256 tokens; the config says 448."""
    for name in ("lm_head.weight", "d2t"):
        model.tensors[name] = model.tensors[name].of_rows(model.tensors[name].rows()[:256])


def _permuted_rows(model: Model) -> None:
    """A draft of the same size whose tokens have other ids."""
    order = list(range(8, 512))
    random.Random(5).shuffle(order)
    order = [*range(8), *order]
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = model.tensors[name].rows()
        model.tensors[name] = model.tensors[name].of_rows([rows[i] for i in order])


def _permuted(model: Model) -> None:
    """… and its tokenizer says so."""
    _permuted_rows(model)
    order = list(range(8, 512))
    random.Random(5).shuffle(order)
    tokenizer = json.loads(model.files["tokenizer.json"])
    vocabulary = tokenizer["model"]["vocab"]
    new = {old: at for at, old in enumerate([*range(8), *order])}
    tokenizer["model"]["vocab"] = {token: new[number] for token, number in vocabulary.items()}
    model.files["tokenizer.json"] = json.dumps(tokenizer).encode()


def _fewer_tokens(model: Model) -> None:
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        model.tensors[name] = model.tensors[name].of_rows(model.tensors[name].rows()[:384])
    model.config["vocab_size"] = 384
