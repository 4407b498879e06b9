"""The recipes that ship: they compose, say what the documents say, and suit every engine named."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.interface import Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.resources import conf_dir, recipes_dir
from speclaunch.deployments.recipe.compose import compose
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import Recipe, load
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.command import render_args
from speclaunch.engine.releases.renames import other_names
from tests.support.lint_report import collect, lint
from tests.support.loops import rows

RECIPES = sorted(recipe_names())

OLDEST = ">=0.4.6.post5"
LOCAL = {"host": "127.0.0.1", "port": 30000}
PUBLIC = {"host": "0.0.0.0", "port": 30000}
LONGER = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}


@cache
def loaded(name: str) -> Recipe:
    """The recipe as it is written; composed once for all tests."""
    return load(name)


def tree(algorithm: str, steps: int, topk: int, tokens: int) -> dict[str, Any]:
    """`--speculative-algorithm --speculative-num-steps --speculative-eagle-topk
    --speculative-num-draft-tokens`, in the documents' order."""
    return {
        "speculative_algorithm": algorithm,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }


LLAMA2 = {
    "model_path": "meta-llama/Llama-2-7b-chat-hf",
    "speculative_draft_model_path": "lmsys/sglang-EAGLE-llama2-chat-7B",
}
QWEN25 = {
    "model_path": "Qwen/Qwen2.5-7B-Instruct",
    "speculative_draft_model_path": "Qwen/Qwen2.5-1.5B-Instruct",
}
SMALL = {"mem_fraction_static": 0.7, "cuda_graph_max_bs_decode": 8}
"""`--mem-fraction-static 0.7 --cuda-graph-max-bs 8` of most examples, under its newest name."""

# Read off the documents by hand, flag by flag; nothing here is computed from recipes/ or conf/.
# `--log-level warning` of the documents is left out on purpose: docs/reference/recipe.md.
DOCUMENTED: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    # sglang-speculative-decoding.md
    "eagle2_llama2_7b": ({**LOCAL, **LLAMA2, **tree("EAGLE", 3, 4, 16), **SMALL}, OLDEST, {}),
    "eagle2_llama2_7b_compile": (
        {
            **LOCAL,
            **LLAMA2,
            **tree("EAGLE", 3, 4, 16),
            "mem_fraction_static": 0.7,
            "enable_torch_compile": True,
            "torch_compile_max_bs": 8,
        },
        OLDEST,
        {},
    ),
    "frspec_llama3_8b": (
        {
            **LOCAL,
            "model_path": "meta-llama/Meta-Llama-3-8B-Instruct",
            "speculative_draft_model_path": "lmsys/sglang-EAGLE-LLaMA3-Instruct-8B",
            **tree("EAGLE", 3, 4, 16),
            "speculative_token_map": "thunlp/LLaMA3-Instruct-8B-FR-Spec/freq_32768.pt",
            **SMALL,
            "dtype": "float16",
        },
        OLDEST,
        LONGER,
    ),
    "eagle3_llama8b": (
        {
            **LOCAL,
            "model_path": "meta-llama/Meta-Llama-3.1-8B-Instruct",
            "speculative_draft_model_path": "jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B",
            **tree("EAGLE3", 3, 4, 16),
            **SMALL,
            "dtype": "float16",
        },
        OLDEST,
        LONGER,
    ),
    "mtp_mimo7b": (
        {
            **PUBLIC,
            "model_path": "XiaomiMiMo/MiMo-7B-RL",
            "trust_remote_code": True,
            **tree("EAGLE", 1, 1, 2),
            **SMALL,
        },
        OLDEST,
        {},
    ),
    "dflash_llama8b": (
        {
            **LOCAL,
            "model_path": "meta-llama/Llama-3.1-8B-Instruct",
            "speculative_algorithm": "DFLASH",
            "speculative_draft_model_path": "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
        },
        ">=0.5.11",
        {},
    ),
    "standalone_qwen7b": (
        {**LOCAL, **QWEN25, **tree("STANDALONE", 4, 2, 7), **SMALL},
        ">=0.5.2,<0.5.15",
        {},
    ),
    "standalone_qwen7b_specv2": (
        {**LOCAL, **QWEN25, **tree("STANDALONE", 4, 1, 5), **SMALL},
        ">=0.5.8,<0.5.15",
        {"SGLANG_ENABLE_SPEC_V2": "True"},
    ),
    "ngram_qwen7b": (
        {
            **LOCAL,
            "model_path": "Qwen/Qwen2.5-7B-Instruct",
            "speculative_algorithm": "NGRAM",
            "speculative_num_draft_tokens": 16,
            "speculative_ngram_max_bfs_breadth": 10,
            **SMALL,
        },
        ">=0.5.3",
        {},
    ),
    "adaptive_eagle_llama2_7b": (
        {**LOCAL, **LLAMA2, **tree("EAGLE", 3, 1, 4), "speculative_adaptive": True, **SMALL},
        ">=0.5.11",
        {},
    ),
    "minimal_memory": (
        {
            **LOCAL,
            **LLAMA2,
            **tree("EAGLE", 3, 1, 4),
            "cuda_graph_max_bs_decode": 2,
            "mem_fraction_static": 0.5,
            "max_running_requests": 4,
        },
        OLDEST,
        {},
    ),
    # slime-speculative-decoding-zh.md and -en.md
    "slime_eagle3_llama8b": (
        {
            **LOCAL,
            "model_path": "meta-llama/Llama-3.1-8B-Instruct",
            "mem_fraction_static": 0.8,
            **tree("EAGLE3", 5, 8, 32),
            "speculative_draft_model_path": "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B",
            "max_running_requests": 48,
            "dtype": "float16",
            "context_length": 2048,
            "attention_backend": "fa3",
        },
        ">=0.5.1",
        {},
    ),
    **{
        name: (
            {**LOCAL, "model_path": "zai-org/" + model, "tp_size": 8, **tree("EAGLE", 3, 1, 4)},
            ">=0.4.10",
            {},
        )
        for name, model in [
            ("slime_mtp_glm46", "GLM-4.6"),
            ("mtp_glm46", "GLM-4.6"),
            ("mtp_glm45", "GLM-4.5"),
        ]
    },
    **{
        name: (
            {
                **LOCAL,
                "model_path": "deepseek-ai/" + model,
                "tp_size": 8,
                "trust_remote_code": True,
                **tree("EAGLE", 3, 1, 4),
            },
            OLDEST,
            {},
        )
        for name, model in [
            ("slime_mtp_deepseek_v3", "DeepSeek-V3"),
            ("mtp_deepseek_v3", "DeepSeek-V3"),
            ("mtp_deepseek_r1", "DeepSeek-R1"),
        ]
    },
    "eagle3_qwen3_235b": (
        {
            **LOCAL,
            "model_path": "Qwen/Qwen3-235B-A22B",
            "tp_size": 8,
            "speculative_draft_model_path": "lmsys/Qwen3-235B-A22B-EAGLE3",
            **tree("EAGLE3", 3, 1, 4),
        },
        ">=0.4.10",
        {},
    ),
}

# The arguments that make each CPU recipe what it is; hardware=cpu adds the limits of a laptop.
CPU = {
    "cpu_ngram": (
        "cycle",
        None,
        {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8},
    ),
    "cpu_standalone": ("cycle", "cycle-draft", tree("STANDALONE", 3, 1, 4)),
    "cpu_eagle3": ("llama", "llama-eagle3", tree("EAGLE3", 3, 2, 6)),
    "cpu_mtp_glm": ("glm-mtp", None, tree("EAGLE", 3, 1, 4)),
}


# Recipes for more than one server or host.
SEVERAL: dict[str, tuple[dict[str, dict[str, Any]], str, str]] = {
    "pd_mtp_deepseek_v3": (
        {
            role: {
                **PUBLIC,
                "model_path": "deepseek-ai/DeepSeek-V3",
                "tp_size": 8,
                "trust_remote_code": True,
                **tree("EAGLE", 3, 1, 4),
                "page_size": 64,
                "max_running_requests": requests,
                "disaggregation_mode": role,
            }
            for role, requests in (("prefill", 64), ("decode", 128))
        },
        ">=0.5.10",
        "h200:8",
    ),
    "multinode_mtp_glm46": (
        {
            "None": {
                **PUBLIC,
                "model_path": "zai-org/GLM-4.6",
                "tp_size": 16,
                "nnodes": 2,
                **tree("EAGLE", 3, 1, 4),
            }
        },
        ">=0.4.10",
        "h100:8",
    ),
}


def header(name: str) -> list[str]:
    """The comment that a recipe begins with, line by line."""
    lines = (recipes_dir() / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    return [line for line in lines[: lines.index("defaults:")] if line.startswith("#")]


def labelled(name: str, label: str) -> str:
    """What the one line `# Label:` of a recipe's header says."""
    found = [line for line in header(name) if line.startswith(f"# {label}:")]
    assert len(found) == 1, f"{name}: {len(found)} lines `# {label}:`"
    return found[0].split(":", 1)[1].strip()


def leaves(values: object, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value of a YAML file with the keys that lead to it."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, (*prefix, str(key)))
    elif not isinstance(values, dict):
        yield prefix, values


def own_values(path: Path) -> dict[tuple[str, ...], Any]:
    """What one file of recipes/ or conf/ sets, at its place in the recipe."""
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text) or {}
    values.pop("defaults", None)
    package = re.match(r"# @package (\S+)", text)
    if package:
        prefix = () if package[1] == "_global_" else tuple(package[1].split("."))
    else:
        grouped = path.is_relative_to(conf_dir()) and path.parent != conf_dir()
        prefix = (path.parent.name,) if grouped else ()
    return dict(leaves(values, prefix))


@cache
def composed_files() -> frozenset[Path]:
    """Every file that some recipe is made of."""
    return frozenset(file.resolve() for name in RECIPES for file in compose(name).files)


def test_every_documented_configuration_has_its_recipe() -> None:
    assert set(RECIPES) == set(DOCUMENTED) | set(CPU) | set(SEVERAL)


@rows("name", RECIPES)
def test_composes_and_validates_under_its_own_name(name: str) -> None:
    recipe = loaded(name)
    assert recipe.deployment.name == name == recipe.path.stem
    assert recipe.deployment.description.strip()
    assert not recipe.deployment.description.endswith(".")


@rows("name", RECIPES)
def test_header_says_what_it_needs_and_how_to_run_it(name: str) -> None:
    assert labelled(name, "Needs")
    assert labelled(name, "Source")
    run = labelled(name, "Run")
    assert run == f"speclaunch recipe={name}" or (name in SEVERAL and f"recipe={name} " in run)
    # A first sentence that is more than the name, before the labels.
    assert len(header(name)[0]) > 30
    assert not header(name)[0].startswith(("# Needs", "# Run"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", RECIPES)
def test_override_of_the_header_changes_the_deployment(name: str) -> None:
    words = shlex.split(labelled(name, "Override").replace("--role decode ", ""))
    assert words[:2] == ["speclaunch", f"recipe={name}"]
    assert words[2:], "no override to try"
    assert load(name, words[2:]).deployment != loaded(name).deployment


@rows("name", RECIPES)
def test_commands_in_comments_are_one_line_and_name_no_machine(name: str) -> None:
    text = (recipes_dir() / f"{name}.yaml").read_text(encoding="utf-8")
    assert not re.search(r"/work/|/home/|/tmp/", text)
    assert "\t" not in text
    assert text.endswith("\n")


@rows("name", sorted(DOCUMENTED))
def test_values_are_the_documented_ones(name: str) -> None:
    args, version, env = DOCUMENTED[name]
    deployment = loaded(name).deployment
    assert deployment.args == args
    assert deployment.engine.version == version
    assert deployment.engine.env == env
    assert deployment.engine.python is None
    assert deployment.hardware.name == "auto"


@pytest.mark.parametrize("name", sorted(SEVERAL))
def test_values_of_recipes_for_several_servers(name: str) -> None:
    roles, version, hardware = SEVERAL[name]
    recipe = loaded(name)
    assert {str(one.role): one.deployment.args for one in recipe.roles} == roles
    assert recipe.deployment.engine.version == version
    assert {one.deployment.hardware.name for one in recipe.roles} == {hardware}


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(SEVERAL))
def test_recipes_for_several_servers_have_no_finding_in_any_release(name: str) -> None:
    rules, lookup = all_rules(), Lookup()
    for version in loaded(name).deployment.engine.specifier.filter(held_versions()):
        found = lint(
            collect([str(recipes_dir() / f"{name}.yaml")]), Options(lookup, rules, (version,))
        )
        said = [one for file in found.files for one in file.findings]
        assert not [one for one in said if one.severity is not Severity.INFO], version


@pytest.mark.parametrize("name", sorted(CPU))
def test_values_of_the_cpu_recipes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    target, draft, speculation = CPU[name]
    deployment = load(name).deployment
    limits = {
        "device": "cpu",
        "dtype": "float32",
        "mem_fraction_static": 0.3,
        "max_total_tokens": 8192,
        "max_running_requests": 4,
    }
    args = dict(deployment.args)
    paths = [Path(str(args.pop("model_path")))]
    if draft is not None:
        paths.append(Path(str(args.pop("speculative_draft_model_path"))))
    assert args == {**LOCAL, **limits, **speculation}
    assert [path.name for path in paths] == [name for name in (target, draft) if name]
    assert all(path.is_relative_to(tmp_path) for path in paths)
    assert deployment.engine.pinned == "0.5.23"
    assert deployment.engine.python == "cpu"
    assert deployment.hardware.name == "cpu"


@pytest.mark.thorough
@pytest.mark.parametrize("name", RECIPES)
def test_nothing_is_said_twice(name: str) -> None:
    seen: dict[tuple[str, ...], list[tuple[Any, Path]]] = {}
    for path in compose(name).files:
        for key, value in own_values(path).items():
            seen.setdefault(key, []).append((value, path))
    repeated = [
        (".".join(key), [path.name for _, path in places])
        for key, places in seen.items()
        if len({repr(value) for value, _ in places}) < len(places)
    ]
    assert not repeated


@pytest.mark.thorough
@pytest.mark.parametrize("name", RECIPES)
def test_every_engine_it_names_knows_its_arguments(name: str) -> None:
    deployment = loaded(name).deployment
    versions = [v for v in held_versions() if deployment.engine.specifier.contains(v)]
    assert versions, "no known engine version can serve this"
    for version in versions:
        catalogue = load_catalogue(version)
        for argument in deployment.args:
            names = (argument, *other_names(argument))
            assert any(catalogue.by_name(n) for n in names), f"{argument} in SGLang {version}"
        assert not render_args(deployment.args, deployment.engine.env, catalogue).problems, version


@rows("name", RECIPES)
def test_arguments_have_their_newest_name(name: str) -> None:
    newest = load_catalogue(held_versions()[-1])
    for argument in loaded(name).deployment.args:
        known = newest.by_name(argument)
        assert known is not None, argument
        assert not known.deprecated, argument


@pytest.mark.thorough
@pytest.mark.parametrize(
    "path",
    sorted(
        p
        for group in ("model", "speculation", "engine", "serving")
        for p in (conf_dir() / group).glob("*.yaml")
    ),
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_group_options_explain_themselves_and_are_used(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = lines[1] if lines[0].startswith("# @package") else lines[0]
    assert comment.startswith("# ") and len(comment) > 20
    if path.parent.name in ("model", "speculation"):
        assert lines[0] == "# @package args"
    assert path.resolve() in composed_files()
