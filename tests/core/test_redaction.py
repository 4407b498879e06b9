from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.core.safe_text import (
    Redactor,
    find_secrets,
    is_literal_secret,
    is_secret_variable,
    masked,
    redact,
)
from speclaunch.serving.launch.journal import Journal, JournalHeader, PlanEntry, RecipeEntry
from tests.support.loops import rows


@rows(
    "line, shown",
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


@rows(
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


@rows(
    "text",
    ["hf_qWmZkTbYcRdLsVpNuXoJ", "sk-9f2c1e7ab04d", "corr3ct-horse-battery", "glpat-8Jq2vR5t1Zk"],
)
def test_a_secret(text: str) -> None:
    assert is_literal_secret(text)


@rows(
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


@rows(
    "name",
    [
        "GITHUB_PAT",
        "WANDB_APIKEY",
        "AUTHORIZATION",
        "COOKIE",
        "SENTRY_DSN",
        "SLACK_WEBHOOK_URL",
        "SGLANG_API_KEY",
    ],
)
def test_a_name_of_a_secret(name: str) -> None:
    assert is_secret_variable(name)


@rows(
    "name",
    [
        *("PATH", "PWD", "MODEL_PATH", "PATCH", "SESSION", "TOKENIZER_PATH"),
        *("SGLANG_SIMULATE_ACC_TOKEN_MODE", "SGLANG_LOG_DECODE_GRAPH_KEY"),
    ],
)
def test_a_name_of_no_secret(name: str) -> None:
    assert not is_secret_variable(name)


def test_a_found_secret_is_the_part_that_is_redacted() -> None:
    text = "http://u:PaWo9@h, Bearer abcdef123456 and hf_qWmZkTbYcRdLsVpNuXoJ"
    assert find_secrets(text) == ["PaWo9", "abcdef123456", "hf_qWmZkTbYcRdLsVpNuXoJ"]
    assert redact(text) == "http://u:***@h, Bearer *** and ***"
    assert redact(redact(text)) == redact(text)


def test_a_short_word_is_not_searched_in_other_text() -> None:
    known = Redactor(["eagle", "none", "4096", "abc", "corr3ct", "a-much-longer-phrase"])
    assert known.text("an eagle of 4096, corr3ct") == "an eagle of 4096, ***"


def test_a_document_keeps_its_form() -> None:
    document = {"hf_token": "corr3ct-horse", "tokens": 4, "list": ["hf_qWmZkTbYcRdLsVpNuXoJ"]}
    assert Redactor().value(document) == {"hf_token": "***", "tokens": 4, "list": ["***"]}
    harmless = {
        "mask_token": "<|mask|>",
        "speculative_token_map": "a/map.pt",
        "eos_token": "eot-12",
    }
    assert Redactor().value(harmless) == harmless


def test_a_journal_has_no_secret(tmp_path: Path) -> None:
    recipe = RecipeEntry(overrides=("engine.env.X=http://u:PaWo9@h",))
    header = JournalHeader(recipe, plan=PlanEntry({"x": "corr3ct-horse"}))
    Journal(tmp_path, header, ["corr3ct-horse"])
    found = json.loads((tmp_path / "journal.json").read_text())
    assert found["recipe"]["overrides"] == ["engine.env.X=http://u:***@h"]
    assert found["plan"]["resolved"] == {"x": "***"}
