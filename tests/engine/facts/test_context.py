"""The context length, as the engine's own function derived it from these configs.

Where there are lengths, they are what `get_context_length(get_hf_text_config(get_config(…)))` gave
in SGLang 0.5.9 with transformers 4.57, and in 0.5.23 with transformers 5.19. None stands where it
raised, or gave what no model has. (0.5.9 refuses `llama3` without its original length altogether.)
"""

from __future__ import annotations

from typing import Any

from speclaunch.engine.facts.read_checkpoint import from_config
from tests.support.loops import rows

OLD, NEW = "0.5.9", "0.5.10.post1"
LENGTH = 4096
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@rows(
    "changes, old, new",
    [
        ({}, 4096, 4096),
        ({"seq_length": 1000}, 1000, 1000),
        ({"seq_length": None}, 4096, 4096),
        ({"max_seq_len": 1001, "model_max_length": 3}, 1001, 1001),
        ({"max_sequence_length": 1002, "seq_length": 5}, 1002, 1002),
        ({"model_max_length": 1003}, 1003, 1003),
        ({"rope_scaling": {"type": "linear", "factor": 2.5}}, 10240, 10240),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, 8192, 8192),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 8192, 8192),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 4096, 4096),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 1024,
                }
            },
            4096,
            4096,
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, **LLAMA3}}, 4096, 4096),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0, **LLAMA3}}, 4096, 4096),
        # the original length is filled in from 0.5.10 on, and switches the factor off
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 16384, 4096),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 16384, 4096),
        (
            {
                "original_max_position_embeddings": 1024,
                "rope_scaling": {"type": "yarn", "factor": 4.0},
            },
            16384,
            4096,
        ),
        # `rope_parameters` is another name of `rope_scaling`, and a new one
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 4096, 16384),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, 4096, 4096),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 4096, 4096),
        ({"rope_parameters": {"full_attention": {"factor": 8.0}}}, 4096, 4096),
        (
            {
                "rope_parameters": {"rope_type": "default"},
                "rope_scaling": {"rope_type": "linear", "factor": 3.0},
            },
            12288,
            12288,
        ),
        # what a class takes when the config does not say it
        ({"max_position_embeddings": ...}, 2048, 2048),
        ({"max_position_embeddings": ..., "model_type": "qwen2"}, 32768, 32768),
        ({"max_position_embeddings": ..., "model_type": "mistral"}, 131072, 131072),
        ({"max_position_embeddings": ..., "model_type": "deepseek_v3"}, 4096, 4096),
        ({"max_position_embeddings": ..., "model_type": "nobody's"}, None, None),
        ({"max_position_embeddings": ..., "model_type": ["llama"]}, None, None),
        # what the engine stumbles over
        ({"rope_scaling": {"type": "linear", "factor": None}}, None, None),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, None, None),
        ({"rope_scaling": {"type": "linear", "factor": True}}, None, None),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, None, None),
        ({"rope_scaling": {"type": "linear", "factor": float("inf")}}, None, None),
        ({"rope_scaling": {"type": "linear", "factor": -2}}, None, None),
        ({"max_position_embeddings": "4096"}, None, None),
        ({"max_position_embeddings": None}, None, None),
        ({"max_position_embeddings": 0}, None, None),
        ({"max_position_embeddings": 2**60}, None, None),
        ({"seq_length": "long"}, None, None),
    ],
)
def test_each_release_derives_its_own(
    changes: dict[str, Any], old: int | None, new: int | None
) -> None:
    said = {"model_type": "llama", "max_position_embeddings": LENGTH, **changes}
    found = from_config("m", {key: value for key, value in said.items() if value is not ...})
    assert (found.context_in(OLD), found.context_in(NEW)) == (old, new)
    assert found.context_length == (new if old == new else None)


def test_a_nested_config_is_asked_and_not_what_is_around_it() -> None:
    inner = {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    gemma3 = from_config("m", {"model_type": "gemma3", "text_config": inner, "seq_length": 9})
    assert gemma3.context_in(OLD) == 1048576
    assert gemma3.context_in(NEW) == 131072
    llava = {
        "architectures": ["LlavaLlamaForCausalLM"],
        "max_position_embeddings": 4096,
        "text_config": {"max_position_embeddings": 1},
    }
    assert from_config("m", llava).context_length == 4096
    assert from_config("m", {**llava, "torch_dtype": "bfloat16"}).dtype == "float16"
