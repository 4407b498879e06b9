"""Models with linear attention, before 0.5.9: each architecture has a branch of its own.

0.5.5.post3 server_args.py:1089, 0.5.6.post2 :1291, 0.5.7 :1304-1465, 0.5.8.post1 :1411-1594.
"""

from __future__ import annotations

from speclaunch.engine.facts.hardware import Hardware
from speclaunch.engine.plan.plan import ChangeKind
from tests.engine.plan.resolving import B200, H100, changes, model, plan
from tests.support.loops import rows

QWEN, GLM, NEMOTRON = "Qwen3NextForCausalLM", "Glm4MoeForCausalLM", "NemotronHForCausalLM"
FALCON, KIMI = "FalconH1ForCausalLM", "KimiLinearForCausalLM"
TRTLLM = "--attention-backend trtllm_mha"


@rows(
    "version, architecture, words, machine, overlap_off, radix_off",
    [
        ("0.5.4.post3", KIMI, "", H100, False, True),
        ("0.5.8.post1", KIMI, "", H100, False, True),
        ("0.5.4.post3", QWEN, "", H100, False, False),
        ("0.5.5.post3", QWEN, "", H100, True, False),
        ("0.5.7", QWEN, "", H100, True, False),
        ("0.5.7", QWEN, "--disable-radix-cache", H100, False, True),
        ("0.5.7", QWEN, "--mamba-scheduler-strategy extra_buffer", H100, False, False),
        ("0.5.5.post3", QWEN, TRTLLM, B200, True, False),
        ("0.5.6.post2", QWEN, TRTLLM, B200, False, True),
        ("0.5.7", QWEN, f"{TRTLLM} --disable-overlap-schedule", B200, False, True),
        ("0.5.7", QWEN, TRTLLM, H100, True, False),
        ("0.5.8.post1", QWEN, "", H100, False, False),
        ("0.5.8.post1", QWEN, TRTLLM, B200, False, True),
        ("0.5.7", GLM, "", H100, False, False),
        ("0.5.8.post1", GLM, "", H100, True, False),
        ("0.5.9", GLM, "", H100, False, False),
        ("0.5.6.post2", NEMOTRON, "", H100, False, False),
        ("0.5.7", NEMOTRON, "", H100, True, False),
        ("0.5.7", NEMOTRON, TRTLLM, B200, False, True),
        ("0.5.7", NEMOTRON, "--speculative-algorithm NGRAM", H100, True, False),
        ("0.5.8.post1", NEMOTRON, "--speculative-algorithm NGRAM", H100, True, True),
        ("0.5.5.post3", FALCON, "", H100, False, False),
        ("0.5.6.post2", FALCON, TRTLLM, B200, True, False),
        ("0.5.7", FALCON, TRTLLM, B200, False, True),
    ],
)
def test_what_cached_states_switch_off(
    version: str,
    architecture: str,
    words: str,
    machine: Hardware,
    overlap_off: bool,
    radix_off: bool,
) -> None:
    found = plan(version, words, target=model(architecture), hardware=machine)
    values = (found.value("disable_overlap_schedule"), found.value("disable_radix_cache"))
    assert values == (overlap_off, radix_off)
    told = [change.name for change in found.changes if change.name == "disable_overlap_schedule"]
    assert len(told) <= 1


def test_the_overlap_that_comes_back_is_said() -> None:
    words = f"{TRTLLM} --disable-overlap-schedule"
    found = plan("0.5.7", words, target=model(QWEN), hardware=B200)
    assert changes(found)["disable_overlap_schedule"] == ChangeKind.OVERLAP
