"""Write one tiny model for the CPU engine: ``make_models.py NAME DEST``.

Runs in the engine's interpreter (torch, safetensors, tokenizers); imports nothing from speclaunch.
The same name always gives the same bytes, and DEST appears complete or not at all.

``cycle``                a target whose next token is a fixed successor of the last one
``cycle-8``              ``cycle`` with 8 layers
``cycle-draft``          a STANDALONE draft for ``cycle``, wrong on 30 % of the vocabulary
``cycle-draft-PERCENT``  the same, wrong on PERCENT % (or ``--error-rate``)
``llama``                a target with 8 layers (EAGLE3's hooks need them), mostly like ``cycle``
``llama-eagle3``         an EAGLE3 draft for ``llama``, with its own vocabulary
``llama-eagle``          an EAGLE-2 draft for ``llama``
``glm-mtp``              a Glm4Moe target with one MTP (nextn) layer as its draft

How acceptance works. The vocabulary is divided into cycles of 8 tokens. The embedding of the next
token of a cycle is the embedding of the current token rotated by a fixed R; all embeddings share
one coordinate. A row of the output layer is the embedding of the token's *predecessor*. A hidden
state close to a token's embedding therefore predicts that token's successor, and R times this state
predicts the token after that. Layers that add nothing give ``cycle``. Layers that add a little
noise from random attention and MLP weights give ``llama`` and ``glm-mtp``, whose output sometimes
depends on the context. The EAGLE3 draft averages its three hidden states and applies R in its MLP,
so each draft step is one token further ahead. It never proposes tokens outside its vocabulary. The
EAGLE-2 draft does the same with one hidden state and the embedding of the last token. Both also
draft for ``cycle-8``, which is always predictable. The MTP layer passes on the embedding of the
last token, with some noise. Special tokens are never predicted, so a reply runs to its
``max_tokens``.
"""

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]

VOCABULARY = 512
CYCLE = 8
SPECIAL = ("<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>", "<|end|>")
BOS, EOS, PAD = 0, 1, 2
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS = 64, 128, 4, 2
HEAD_DIM = HIDDEN // HEADS
POSITIONS = 2048
RMS_EPSILON = 1e-5
CONSTANT = 2.0
"""Value of coordinate 0 in every embedding; the norm of an embedding is ``sqrt(HIDDEN)``."""


def successor() -> torch.Tensor:
    """Return the token that follows each token, ``[VOCABULARY]``: the next token of its cycle.

    A special token is followed by a token of the last cycle, so no cycle contains special tokens.
    """
    token = torch.arange(VOCABULARY)
    following = token // CYCLE * CYCLE + (token + 1) % CYCLE
    following[: len(SPECIAL)] = VOCABULARY - len(SPECIAL) + torch.arange(len(SPECIAL))
    return following


def rotation() -> torch.Tensor:
    """Return R, ``[HIDDEN, HIDDEN]``, of order ``CYCLE``. It does not change coordinate 0.

    It rotates planes of coordinates by 1, 2 or 3 steps of 45 degrees; coordinate 1 is unused.
    """
    turn = torch.eye(HIDDEN)
    for plane in range(1, HIDDEN // 2):
        angle = 2 * math.pi * (1 + plane % 3) / CYCLE
        block = torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        )
        turn[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = block
    return turn


def embeddings(noise: torch.Generator) -> torch.Tensor:
    """Return the embedding of each token, ``[VOCABULARY, HIDDEN]``, with norm ``sqrt(HIDDEN)``."""
    turn, rows = rotation(), []
    for _ in range(VOCABULARY // CYCLE):
        row = torch.randn(HIDDEN, generator=noise)
        row[:2] = 0
        row *= math.sqrt(HIDDEN - CONSTANT**2) / row.norm()
        row[0] = CONSTANT
        for _ in range(CYCLE):
            rows.append(row)
            row = turn @ row
    return torch.stack(rows)


def output_layer(embedding: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the output layer that maps the embedding of a token to ``following[token]``."""
    head = torch.zeros(VOCABULARY, HIDDEN)
    return head.index_add_(0, following, embedding / embedding.norm(dim=1, keepdim=True))


def generator(seed: int) -> torch.Generator:
    """Return a noise source; each component of a model has its own seed."""
    return torch.Generator().manual_seed(seed)


def random_weight(noise: torch.Generator, rows: int, columns: int, scale: float) -> torch.Tensor:
    """Return a random matrix; at ``scale`` 1 it preserves the norm of vectors."""
    return torch.randn(rows, columns, generator=noise) * (scale / math.sqrt(columns))


def attention(noise: torch.Generator, prefix: str, inputs: int, added: float) -> Tensors:
    """Return random attention weights; ``added`` scales their contribution to the hidden state."""
    name = prefix + "self_attn."
    return {
        name + "q_proj.weight": random_weight(noise, HEADS * HEAD_DIM, inputs, 1),
        name + "k_proj.weight": random_weight(noise, KV_HEADS * HEAD_DIM, inputs, 1),
        name + "v_proj.weight": random_weight(noise, KV_HEADS * HEAD_DIM, inputs, 1),
        name + "o_proj.weight": random_weight(noise, HIDDEN, HEADS * HEAD_DIM, added),
    }


def mlp(noise: torch.Generator, prefix: str, width: int, added: float) -> Tensors:
    """Return random weights of a gated MLP; ``added`` scales its contribution to the state."""
    return {
        prefix + "gate_proj.weight": random_weight(noise, width, HIDDEN, 1),
        prefix + "up_proj.weight": random_weight(noise, width, HIDDEN, 1),
        prefix + "down_proj.weight": random_weight(noise, HIDDEN, width, added),
    }


def norms(prefix: str, *names: str) -> Tensors:
    """Return norm weights of 1."""
    return {f"{prefix}{name}.weight": torch.ones(HIDDEN) for name in names}


def common_config(architecture: str, model_type: str, layers: int) -> Config:
    """Return the fields of ``config.json`` that all tiny models share."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": RMS_EPSILON,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "torch_dtype": "float32",
    }


def llama_model(layers: int, added: float, following: torch.Tensor) -> tuple[Config, Tensors]:
    """Return a Llama that predicts ``following``; ``added`` scales the noise of its layers."""
    embedding, noise = embeddings(generator(1)), generator(2)
    tensors = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": output_layer(embedding, following),
        **norms("model.", "norm"),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= attention(noise, prefix, HIDDEN, added)
        tensors |= mlp(noise, prefix + "mlp.", INTERMEDIATE, added)
        tensors |= norms(prefix, "input_layernorm", "post_attention_layernorm")
    return common_config("LlamaForCausalLM", "llama", layers), tensors


def cycle() -> tuple[Config, Tensors]:
    """Return the target that always predicts the next token of its cycle."""
    return llama_model(layers=2, added=0.0, following=successor())


def cycle_8() -> tuple[Config, Tensors]:
    """Return ``cycle`` with 8 layers, whose hidden states for EAGLE3 are also embeddings."""
    return llama_model(layers=8, added=0.0, following=successor())


def llama() -> tuple[Config, Tensors]:
    """Return the target with 8 layers that add noise."""
    return llama_model(layers=8, added=0.4, following=successor())


def glm_mtp() -> tuple[Config, Tensors]:
    """Return a Glm4Moe with 2 layers, the second with 4 experts, and one nextn layer."""
    layers, experts, expert_width, added = 2, 4, 32, 0.15
    embedding, noise = embeddings(generator(1)), generator(5)
    head = output_layer(embedding, successor())
    tensors = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        **norms("model.", "norm"),
    }
    for layer in range(layers + 1):
        prefix = f"model.layers.{layer}."
        tensors |= attention(noise, prefix, HIDDEN, added)
        tensors |= norms(prefix, "input_layernorm", "post_attention_layernorm")
        if layer == 0:
            tensors |= mlp(noise, prefix + "mlp.", INTERMEDIATE, added)
            continue
        tensors[prefix + "mlp.gate.weight"] = random_weight(noise, experts, HIDDEN, 1)
        tensors[prefix + "mlp.gate.e_score_correction_bias"] = torch.zeros(experts)
        tensors |= mlp(noise, prefix + "mlp.shared_experts.", expert_width, added)
        for expert in range(experts):
            tensors |= mlp(noise, f"{prefix}mlp.experts.{expert}.", expert_width, added)
    nextn = f"model.layers.{layers}."
    tensors[nextn + "eh_proj.weight"] = torch.cat(
        [torch.eye(HIDDEN), random_weight(noise, HIDDEN, HIDDEN, 1.8)], dim=1
    )
    tensors[nextn + "embed_tokens.weight"] = embedding.clone()
    tensors[nextn + "shared_head.head.weight"] = head.clone()
    tensors |= norms(nextn, "enorm", "hnorm", "shared_head.norm")
    config = common_config("Glm4MoeForCausalLM", "glm4_moe", layers)
    return config | {
        "moe_intermediate_size": expert_width,
        "n_routed_experts": experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "partial_rotary_factor": 0.5,
        "use_qk_norm": False,
        "num_nextn_predict_layers": 1,
    }, tensors


def turning_mlp(prefix: str) -> Tensors:
    """Return an MLP that adds ``(R - 1) x``; with the residual, it turns the hidden state by R."""
    # gate is the same large value for every hidden state (coordinate 0 is constant), so that
    # silu(gate) is a constant too and the MLP is the linear map R - 1
    gate = torch.zeros(INTERMEDIATE, HIDDEN)
    gate[:HIDDEN, 0] = 10.0 / CONSTANT
    up = torch.zeros(INTERMEDIATE, HIDDEN)
    up[:HIDDEN] = (rotation() - torch.eye(HIDDEN)) / 10.0
    down = torch.zeros(HIDDEN, INTERMEDIATE)
    down[:, :HIDDEN] = torch.eye(HIDDEN)
    return {
        prefix + "gate_proj.weight": gate,
        prefix + "up_proj.weight": up,
        prefix + "down_proj.weight": down,
    }


def cycle_draft(error_rate: float) -> tuple[Config, Tensors]:
    """Return a one-layer ``cycle`` that is wrong on a share ``error_rate`` of the vocabulary."""
    following = successor()
    ordinary = torch.arange(len(SPECIAL), VOCABULARY)
    shuffled = ordinary[torch.randperm(ordinary.numel(), generator=generator(3))]
    wrong = shuffled[: round(error_rate * ordinary.numel())]
    if wrong.numel() > 1:
        following[wrong] = following[wrong.roll(1)]
    return llama_model(layers=1, added=0.0, following=following)


def llama_eagle3() -> tuple[Config, Tensors]:
    """Return the EAGLE3 draft of ``llama``, whose vocabulary has 7/8 of the tokens."""
    embedding, noise = embeddings(generator(1)), generator(4)
    everything = torch.randperm(VOCABULARY - len(SPECIAL), generator=noise) + len(SPECIAL)
    known = everything[: VOCABULARY * 7 // 8].sort().values
    is_known = torch.zeros(VOCABULARY, dtype=torch.bool)
    is_known[known] = True

    tensors = {
        "fc.weight": torch.eye(HIDDEN).repeat(1, 3) / 3,
        "lm_head.weight": output_layer(embedding, successor())[known],
        "d2t": known - torch.arange(known.numel()),
        "t2d": is_known,
        **turning_mlp("midlayer.mlp."),
        **attention(noise, "midlayer.", 2 * HIDDEN, 0.05),
        **norms("midlayer.", "hidden_norm", "input_layernorm", "post_attention_layernorm"),
        **norms("", "norm"),
    }
    config = common_config("LlamaForCausalLMEagle3", "llama", 1)
    return config | {"draft_vocab_size": known.numel()}, tensors


def llama_eagle() -> tuple[Config, Tensors]:
    """Return the EAGLE-2 draft of ``llama``, which shares the target's embedding and output layer.

    Both halves of ``fc`` yield the embedding of the second-to-last token: the first rotates the
    last token's embedding back by R, the second passes on the target's hidden state. The MLP
    applies R.
    """
    noise, turn = generator(6), rotation()
    tensors = {
        "fc.weight": torch.cat([turn.T / 2, torch.eye(HIDDEN) / 2], dim=1),
        "fc.bias": torch.zeros(HIDDEN),
        **turning_mlp("layers.0.mlp."),
        **attention(noise, "layers.0.", HIDDEN, 0.05),
        **norms("layers.0.", "post_attention_layernorm"),
    }
    return common_config("LlamaForCausalLMEagle", "llama", 1), tensors


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

TEXT = """
A draft model proposes a few tokens, the target model verifies them all at once, and the longest
agreeing prefix is accepted. Speculative decoding changes the speed of an answer, never its words.
The quick brown fox jumps over the lazy dog while the server waits for another request to arrive.
When memory runs out the launcher turns the right knob: fewer requests, a smaller cache, a shorter
draft. def successor(token): return cycle[(position + 1) % len(cycle)]  # greedy and predictable
Hello! How are you today? Please write a short story about an engineer who measures everything.
Once upon a time there was a small language model on an ordinary processor, without a graphics card.
It answered every question with great confidence, because nobody had told it what the words meant.
"""


def write_tokenizer(folder: Path) -> None:
    """Train the byte-level BPE tokenizer of all models and write it with its chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise RuntimeError(f"the tokenizer has {tokenizer.get_vocab_size()} of {VOCABULARY} tokens")
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[BOS],
            "eos_token": SPECIAL[EOS],
            "pad_token": SPECIAL[PAD],
            "model_max_length": POSITIONS,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def write_json(path: Path, content: Config) -> None:
    """Write ``content`` as a JSON file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


MODELS: dict[str, Callable[[], tuple[Config, Tensors]]] = {
    "cycle": cycle,
    "cycle-8": cycle_8,
    "llama": llama,
    "llama-eagle3": llama_eagle3,
    "llama-eagle": llama_eagle,
    "glm-mtp": glm_mtp,
}
CYCLE_DRAFT = re.compile(r"cycle-draft(?:-(\d{1,2}|100))?")
DEFAULT_ERROR_RATE = 0.3


def build(name: str, error_rate: float | None) -> tuple[Config, Tensors]:
    """Return a model's config and weights. Raises ``ValueError`` for invalid arguments."""
    draft = CYCLE_DRAFT.fullmatch(name)
    if draft is None:
        if name not in MODELS:
            raise ValueError(f"no model {name!r}; known: {', '.join(MODELS)}, cycle-draft")
        if error_rate is not None:
            raise ValueError(f"--error-rate is for cycle-draft, not for {name}")
        return MODELS[name]()
    if error_rate is None:
        error_rate = int(draft[1]) / 100 if draft[1] else DEFAULT_ERROR_RATE
    if not 0 <= error_rate <= 1:
        raise ValueError(f"an error rate of {error_rate} is not between 0 and 1")
    return cycle_draft(error_rate)


def fingerprint() -> str:
    """Return the hash of this script."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def write_model(name: str, destination: Path, error_rate: float | None = None) -> None:
    """Write the model to a temporary folder next to ``destination``, then rename the folder.

    Replaces an existing model. ``speclaunch-model.json`` stores the hash of this script, which
    shows whether the model is current.
    """
    config, tensors = build(name, error_rate)
    destination.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    try:
        scratch.chmod(0o755)
        save_file(
            {key: tensor.contiguous() for key, tensor in tensors.items()},
            scratch / "model.safetensors",
            metadata={"format": "pt"},
        )
        write_json(scratch / "config.json", config)
        write_tokenizer(scratch)
        write_json(scratch / "speclaunch-model.json", {"name": name, "generator": fingerprint()})
        for file in scratch.iterdir():
            file.chmod(0o644)
        if destination.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
            os.rename(destination, old)  # noqa: PTH104
            os.rename(scratch, destination)  # noqa: PTH104
            shutil.rmtree(old)
        else:
            os.rename(scratch, destination)  # noqa: PTH104
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> int:
    """Write the model that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("dest", type=Path)
    parser.add_argument(
        "--error-rate",
        type=float,
        help="share of the vocabulary that a cycle-draft predicts wrongly",
    )
    arguments = parser.parse_args()
    try:
        write_model(arguments.name, arguments.dest.absolute(), arguments.error_rate)
    except ValueError as error:
        sys.stderr.write(f"make_models.py: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
