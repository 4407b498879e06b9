"""SGLang's own `--config` file: the arguments that the engine makes of it, and its traps."""

from __future__ import annotations

import pytest

from speclaunch.core.errors import InputError
from speclaunch.deployments.sources.files import read_yaml
from speclaunch.deployments.sources.interface import InvocationKind
from speclaunch.deployments.sources.sglang_yaml import read_sglang_yaml
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.entrypoint import config_refuses
from tests.support.deployments.sources.helpers import at, dropped, texts
from tests.support.loops import rows

CONFIG = """\
# a remark
model-path: meta/x  # which
tp-size: 8
speculative_algorithm: null
trust-remote-code: true
disable-radix-cache: false
cuda-graph-bs: [1, 2, 4.0]
json-model-override-args: {a: 1, b: [x]}
tp-size: 4
lora-paths: []
mem-fraction-static: 0.80
port: 0x10
some-unknown: yes
served-model-name: "a # b"
empty:
"""


def test_the_arguments_that_the_engine_makes() -> None:
    reading = read_sglang_yaml(CONFIG, "c.yaml")
    (found,) = reading.invocations
    assert found.kind is InvocationKind.CONFIG
    assert texts(found) == [
        "--model-path", "meta/x", "--tp-size", "4", "--speculative_algorithm", "None",
        "--trust-remote-code", "--cuda-graph-bs", "1", "2", "4.0",
        "--json-model-override-args", '{"a": 1, "b": ["x"]}', "--mem-fraction-static", "0.8",
        "--port", "16", "--some-unknown", "true", "--served-model-name", "a # b", "--empty", "None",
    ]  # fmt: skip
    assert at(found.words[0]) == (2, 1)
    assert at(found.words[1]) == (2, 13)
    assert at(found.words[3]) == (9, 10)
    assert at(found.words[9]) == (7, 20)
    assert dropped(found) == ["disable-radix-cache: false"]
    (refused,) = found.refused  # LoRAPathAction is no action that the engine merges
    assert refused.place is not None
    assert (refused.place.line, refused.message.split(":")[0]) == (10, "argument --lora-paths")
    assert [comment.text for comment in found.comments] == ["a remark", "which"]


def test_its_traps_are_problems() -> None:
    problems = read_sglang_yaml(CONFIG, "c.yaml").problems
    shown = {(p.place.line, p.place.column): p.message for p in problems if p.place}
    assert shown == {
        (9, 1): "`tp-size` appears twice: the engine silently uses the last value",
        (4, 1): "`speculative_algorithm: null` reaches the engine as the text None",
        (15, 1): "`empty: null` reaches the engine as the text None",
    }
    odd = read_sglang_yaml("on: 1\n3: x\n? [a]\n: b\ntp: 2\n", "c.yaml")
    assert texts(odd.invocations[0]) == ["--tp", "2"]
    assert len(odd.problems) == 3


def test_values_that_the_engine_fails_on() -> None:
    reading = read_sglang_yaml("tp: 2\ndtype: =\nx: {a: 2026-01-01}\ny: 2026-01-01\n", "c.yaml")
    assert texts(reading.invocations[0]) == ["--tp", "2", "--y", "2026-01-01"]
    assert [p.place.line for p in reading.problems if p.place] == [2, 3]


def test_merge_keys_come_first() -> None:
    reading = read_sglang_yaml("<<: {tp: 1, dp: 2}\ntp: 8\n", "c.yaml")
    assert texts(reading.invocations[0]) == ["--dp", "2", "--tp", "8"]


def test_a_config_is_told_from_other_yaml() -> None:
    assert read_yaml(CONFIG, "c.yaml").invocations[0].kind is InvocationKind.CONFIG
    assert read_yaml("a: 1\nb: 2\ntp: 3\n", "c.yaml").invocations == ()
    assert read_yaml("defaults: [base]\nargs:\n  tp_size: 2\n", "recipe.yaml").invocations == ()
    assert read_yaml("", "c.yaml").invocations == ()
    assert read_yaml("- a\n- b\n", "c.yaml").invocations == ()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "must contain `key: value` lines"),
        ("a: 1\n---\nb: 2\n", "single YAML document"),
        ("a: &a [*a]\n", "contains itself"),
        ("a: [\n", "not valid YAML"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
                for before, name in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "expand to too many values",
        ),
        (
            "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(3000)),
            "expand to too many values",
        ),
        ("a: " + "[" * 100 + "]" * 100, "nested more than 60 levels deep"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_sglang_yaml(text, "c.yaml")
    assert message in caught.value.problems[0].message


@rows(
    "key, version, refused",
    [
        ("disable_cuda_graph", "0.5.22", True),
        ("disable_fast_image_processor", "0.5.22", False),
        ("cuda_graph_max_bs_prefill", "0.5.19", True),
        ("cuda_graph_max_bs_prefill", "0.5.23", False),
        ("enable_dp_attention", "0.5.23", True),
        ("enable_dp_attention", "0.5.21", False),
    ],
)
def test_a_key_with_a_deprecated_alias_is_refused_as_the_release_does(
    key: str, version: str, refused: bool
) -> None:
    assert config_refuses(key, load(version)) is refused
