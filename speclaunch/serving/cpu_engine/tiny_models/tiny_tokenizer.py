"""Tokenizer shared by all tiny models, and its training text."""

import json
from pathlib import Path

from tiny_parts import BOS, EOS, PAD, POSITIONS, SPECIAL, VOCABULARY, Config
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

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
