from __future__ import annotations

from typing import Any

import pytest

from speclaunch.engine.releases.command import RenderedArgs, RenderedArgument
from speclaunch.engine.releases.shell import Address
from speclaunch.serving.launch.client import Generation, check_answers
from tests.support.loops import rows


def asked(**args: str) -> RenderedArgs:
    arguments = tuple(
        RenderedArgument(name, f"--{name}", tuple(value.split())) for name, value in args.items()
    )
    return RenderedArgs("0.5.23", arguments, {})


def generated(count: int | None = 10, length: float | None = 3.2) -> Generation:
    return Generation("text", 32, 0.5, count, length)


INFO: dict[str, Any] = {
    "model_path": "target",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "draft",
    "speculative_num_draft_tokens": 4,
    "mem_fraction_static": 0.7,
    "cuda_graph_bs": [1, 2],
    "context_length": 32768,
    "enable_metrics": True,
}


def test_what_was_asked_and_is_so() -> None:
    verdict = check_answers(
        INFO,
        generated(),
        asked(
            speculative_algorithm="EAGLE3",
            mem_fraction_static="0.70",
            cuda_graph_bs="1 2",
            context_length="32k",
            enable_metrics="",
        ),
    )
    assert verdict.ok and not verdict.changes and not verdict.warnings


def test_speculation_that_is_off() -> None:
    info = {**INFO, "speculative_algorithm": None}
    verdict = check_answers(info, generated(None, None), asked(speculative_algorithm="EAGLE3"))
    assert not verdict.ok
    assert "speculation is off" in verdict.problems[0]


def test_speculation_that_is_on_and_drafts_nothing() -> None:
    verdict = check_answers(INFO, generated(None, None), asked(speculative_algorithm="EAGLE3"))
    assert verdict.problems == ("the engine reports EAGLE3 but generated without drafting",)


def test_no_draft_was_ever_accepted() -> None:
    verdict = check_answers(INFO, generated(32, 1.0), asked(speculative_algorithm="EAGLE3"))
    assert verdict.ok
    assert "no drafted token was accepted" in verdict.warnings[0]


@pytest.mark.parametrize("draft", [None, "target"])
def test_the_target_as_its_own_draft(draft: str | None) -> None:
    info = {**INFO, "speculative_draft_model_path": draft}
    verdict = check_answers(info, generated(), asked(speculative_algorithm="EAGLE3"))
    assert "the target as its own draft" in verdict.warnings[0]


def test_what_the_engine_changed_is_named() -> None:
    verdict = check_answers(
        INFO, generated(), asked(speculative_num_draft_tokens="16", mem_fraction_static="0.8")
    )
    assert [(c.name, c.requested, c.effective) for c in verdict.changes] == [
        ("speculative_num_draft_tokens", "16", "4"),
        ("mem_fraction_static", "0.8", "0.7"),
    ]


def test_an_engine_without_speculation_that_was_asked_for_none() -> None:
    info = {**INFO, "speculative_algorithm": None}
    assert check_answers(info, generated(None, None), asked(mem_fraction_static="0.7")).ok


@rows(
    "host, url",
    [
        ("0.0.0.0", "http://127.0.0.1:30000"),
        ("::", "http://[::1]:30000"),
        ("10.0.0.3", "http://10.0.0.3:30000"),
        ("gpu-box", "http://gpu-box:30000"),
    ],
)
def test_the_address_that_a_client_on_this_machine_uses(host: str, url: str) -> None:
    assert Address(host, 30000).url == url
