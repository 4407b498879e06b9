from __future__ import annotations

import pytest

from speclaunch.engine.secrets import masked


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  --api-key sk-123 \\", "  --api-key *** \\"),
        ("--api-key=sk-123", "--api-key=***"),
        (
            "HF_TOKEN=hf_abc python3 -m sglang.launch_server",
            "HF_TOKEN=*** python3 -m sglang.launch_server",
        ),
        ("  api_key: 'sk 1'", "  api_key: ***"),
        ('args: ["--api-key", "sk-1", "--port", "1"]', 'args: ["--api-key", ***, "--port", "1"]'),
        ('export OPENAI_API_KEY="sk"', "export OPENAI_API_KEY=***"),
    ],
)
def test_secret_values_are_hidden(line: str, shown: str) -> None:
    assert masked(line) == shown


@pytest.mark.parametrize(
    "line",
    [
        "--api-key $API_KEY",
        '--api-key "${API_KEY:?}"',
        "--speculative-num-draft-tokens 4 --max-total-tokens 8192",
        "--enable-tokenizer-batch-encode --port 1",
        "  speculative_num_draft_tokens: 16",
        "--tool-call-parser qwen25",
    ],
)
def test_everything_else_is_left(line: str) -> None:
    assert masked(line) == line
