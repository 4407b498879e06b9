from __future__ import annotations

import pytest

from speclaunch.redaction import is_literal_secret, masked


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


@pytest.mark.parametrize(
    "line",
    ["  AWS_SECRET_ACCESS_KEY: abcdef", "export WANDB_KEY=abcdef", "DB_PASSWORD_2='abcdef'"],
)
def test_variables_whose_name_says_so_are_hidden(line: str) -> None:
    assert "abcdef" not in masked(line)


@pytest.mark.parametrize(
    "text",
    ["hf_qWmZkTbYcRdLsVpNuXoJ", "sk-9f2c1e7ab04d", "corr3ct-horse-battery", "glpat-8Jq2vR5t1Zk"],
)
def test_a_secret(text: str) -> None:
    assert is_literal_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "EMPTY",
        "none",
        "$HF_TOKEN",
        "${oc.env:HF_TOKEN}",
        "<your-token>",
        "your_api_key",
        "YOUR-HF-TOKEN-HERE",
        "hf_xxxxxxxxxxxxxxx",
        "hf_...",
        "hf_********",
        "{{ .Values.token }}",
        "changeme",
        "token-abc123",
        "sk-123456",
        "/run/secrets/hf",
        "~/.cache/token",
        "https://vault.example.com/hf",
        "4096",
        "1.0",
        "true",
        "my-api-key",
        "dummy-key",
    ],
)
def test_a_stand_in_for_a_secret(text: str) -> None:
    assert not is_literal_secret(text)
