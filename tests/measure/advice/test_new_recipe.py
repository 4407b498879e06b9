"""A recipe that `init` writes: clean by the rules, taken by the parser, within the memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from speclaunch.checks.rules.examine import Lookup, check_request
from speclaunch.checks.rules.interface import Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.sources.requests import from_words
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.topics.speculation import STEPS, TOKENS, TOPK
from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.measure.advice.drafts import SpeculationMethod
from speclaunch.measure.advice.new_recipe import NewRecipe, NotWrittenError, new_recipe
from speclaunch.measure.advice.placing import LENGTHENED
from tests.measure.advice.helpers import made, wanted

FEW = [
    ("Qwen/Qwen3-8B", "h100:1", "0.5.23"),
    ("deepseek-ai/DeepSeek-V3", "h200:8", "0.5.23"),
    ("openai/gpt-oss-120b", "h100:4", "0.5.16"),
    ("meta-llama/Llama-3.3-70B-Instruct", "a100-80gb:4", "0.5.12.post1"),
    ("Qwen/Qwen2.5-7B-Instruct", "l4:1", "0.5.9"),
]
MANY = [
    ("MiniMaxAI/MiniMax-M2.5", "h200:8", "0.5.23"),
    ("PrimeIntellect/INTELLECT-3-Base", "h200:8", "0.5.23"),
    ("Qwen/Qwen2-72B-Instruct", "h100:8", "0.5.20"),
    ("Qwen/Qwen2-VL-7B-Instruct", "a100-40gb:1", "0.5.23"),
    ("Qwen/Qwen2.5-3B-Instruct", "rtx4090:1", "0.5.23"),
    ("Qwen/Qwen2.5-VL-7B-Instruct", "h100:1", "0.5.22"),
    ("Qwen/Qwen3-1.7B", "t4:1", "0.5.23"),
    ("Qwen/Qwen3-32B", "h100:2", "0.5.23"),
    ("Qwen/Qwen3-235B-A22B", "h200:8", "0.5.23"),
    ("Qwen/Qwen3-30B-A3B", "h100:2", "0.5.15.post1"),
    ("Qwen/Qwen3-VL-32B-Instruct", "h200:2", "0.5.23"),
    ("Qwen/Qwen3-VL-235B-A22B-Instruct", "h200:8", "0.5.23"),
    ("Qwen/Qwen3.5-27B", "h200:2", "0.5.23"),
    ("Qwen/Qwen3.5-35B-A3B", "h100:4", "0.5.23"),
    ("Qwen/Qwen3.6-27B", "h200:1", "0.5.23"),
    ("Qwen/Qwen3.6-35B-A3B", "b200:2", "0.5.23"),
    ("XiaomiMiMo/MiMo-7B-RL", "rtx6000ada:1", "0.5.23"),
    ("XiaomiMiMo/MiMo-V2-Flash", "h200:8", "0.5.23"),
    ("alpindale/WizardLM-2-8x22B", "h200:8", "0.5.23"),
    ("codellama/CodeLlama-7b-hf", "a10g:2", "0.5.23"),
    ("deepseek-ai/DeepSeek-R1", "b200:8", "0.5.21"),
    ("deepseek-ai/DeepSeek-V2-Lite", "h100:1", "0.5.23"),
    ("deepseek-ai/DeepSeek-V3.1", "h200:8", "0.5.18"),
    ("deepseek-ai/DeepSeek-V3.2", "h200:8", "0.5.23"),
    ("google/gemma-2-9b", "h100:1", "0.5.23"),
    ("google/gemma-3-1b-it", "l4:1", "0.5.23"),
    ("google/gemma-3-27b-it", "h100:2", "0.5.23"),
    ("google/gemma-7b", "a100-40gb:1", "0.5.23"),
    ("ibm-granite/granite-3b-code-instruct-128k", "h100:1", "0.5.23"),
    ("meta-llama/Llama-2-7b-chat-hf", "a100-40gb:1", "0.5.23"),
    ("meta-llama/Llama-3.1-8B-Instruct", "h200:8", "0.5.23"),
    ("meta-llama/Llama-3.2-3B-Instruct", "rtx4090:1", "0.5.23"),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "h200:8", "0.5.23"),
    ("meta-llama/Meta-Llama-3.1-405B", "h200:8", "0.5.23"),
    ("microsoft/Phi-3.5-mini-instruct", "h100:1", "0.5.23"),
    ("microsoft/phi-4", "h100:1", "0.5.23"),
    ("mistralai/Devstral-Small-2-24B-Instruct-2512", "h100:2", "0.5.23"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "h100:1", "0.5.23"),
    ("mistralai/Mixtral-8x7B-v0.1", "h100:4", "0.5.14"),
    ("moonshotai/Kimi-K2.5", "h200:8", "0.5.23"),
    ("moonshotai/Kimi-K2.6", "b200:8", "0.5.23"),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h100:2", "0.5.23"),
    ("openai/gpt-oss-20b", "h100:1", "0.5.23"),
    ("zai-org/GLM-4.5-Air", "h100:8", "0.5.23"),
    ("zai-org/GLM-4.6", "h200:8", "0.5.10.post1"),
    ("zai-org/GLM-5-FP8", "h200:8", "0.5.23"),
]
ALL = [*FEW, *(pytest.param(*one, marks=pytest.mark.thorough) for one in MANY)]


def written(target: str, hardware: str, version: str) -> NewRecipe | None:
    """The recipe; None where keys of the target's config are unread, so that nobody can tell."""
    try:
        return made(target, hardware, version)
    except NotWrittenError as error:
        if wanted(target, hardware).target.unread and "memory unknown" in str(error):
            return None
        raise


@pytest.mark.thorough
@pytest.mark.parametrize(("target", "hardware", "version"), ALL)
def test_what_is_written_is_clean_and_fits(
    target: str, hardware: str, version: str, tmp_path: Path
) -> None:
    """Asked on another way than it was written: from the words of its command."""
    new = written(target, hardware, version)
    if new is None:
        pytest.skip("the index has not read all of it")
    path = tmp_path / "new.yaml"
    path.write_text(new.text)
    recipe = load(str(path))
    assert recipe.deployment.engine.pinned == version
    assert recipe.deployment.hardware.name == hardware
    prepared = prepare(recipe, dry_run=True)
    words = [token for one in prepared.rendered_args.arguments for token in one.tokens]
    catalogue = load_catalogue(version)
    parsed = parse_argv(words, catalogue)
    assert not parsed.problems
    env = {name: value for name, value in prepared.overlay.items() if value is not None}
    lookup = Lookup(hardware=declare(hardware))
    found = check_request(from_words(words, env, catalogue), lookup, all_rules())
    told = [one for one in found.results.findings if one.severity is not Severity.INFO]
    assert {one.code for one in told} <= {LENGTHENED}
    fits = budget(found.plan)
    assert fits.fit is Fit.FITS
    assert (fits.tokens or 0) >= 8192 or fits.requests_at_context
    facts = found.plan.facts
    assert facts.target is not None and found.plan.value("model_path") == target
    tp, gpus = found.plan.value("tp_size"), lookup.hardware
    assert gpus is not None and gpus.memory_mib is not None and tp <= gpus.count
    if facts.target.weight_bytes is not None and facts.target.quantization is None:
        assert facts.target.weight_bytes < tp * gpus.memory_mib * (1 << 20)
    heads = facts.target.num_attention_heads
    assert heads is None or heads % tp == 0


@pytest.mark.thorough
def test_at_least_forty_of_many_families_are_written() -> None:
    done = [one for one in (*FEW, *MANY) if written(*one) is not None]
    assert len(done) >= 40
    classes = {wanted(target, hardware).target.architecture for target, hardware, _ in done}
    assert len(classes) >= 20


def test_every_value_has_its_reason_and_the_recipe_says_what_it_rests_on() -> None:
    text = made("deepseek-ai/DeepSeek-V3", "h200:8").text
    header = text.partition("defaults:")[0]
    for said in ("MTP for deepseek-ai/DeepSeek-V3", "# Why:", "# Memory:", "# Facts:", "0.5.23"):
        assert said in header
    assert yaml.safe_load(text)["hardware"] == {"name": "h200:8"}
    assert "tp_size" in text or "model: deepseek_v3" in text  # ours, which says tp_size 8


@pytest.mark.thorough
def test_the_same_question_has_the_same_answer() -> None:
    again = new_recipe(wanted("Qwen/Qwen3-8B", "h100:1"))
    assert again.text == made("Qwen/Qwen3-8B", "h100:1").text


def test_what_the_model_group_asks_for_is_asked_for() -> None:
    assert made("XiaomiMiMo/MiMo-7B-RL", "h100:1").placed.arguments["trust_remote_code"] is True


@pytest.mark.thorough
def test_a_way_is_taken_by_name() -> None:
    found = new_recipe(wanted("deepseek-ai/DeepSeek-V3", "h200:8", method="ngram"))
    assert found.way.method is SpeculationMethod.NGRAM
    found = new_recipe(wanted("Qwen/Qwen3-8B", "h100:1", method="standalone"))
    assert found.way.draft == "Qwen/Qwen3-0.6B"
    chosen = new_recipe(wanted("Qwen/Qwen3-8B", "h100:1", draft="Qwen/Qwen3-1.7B"))
    assert chosen.way.draft == "Qwen/Qwen3-1.7B"


def test_a_way_that_the_target_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="no speculation method 'mtp'"):
        new_recipe(wanted("Qwen/Qwen3-8B", "h100:1", method="mtp"))
    with pytest.raises(InputError, match="no draft o/none"):
        new_recipe(wanted("Qwen/Qwen3-8B", "h100:1", draft="o/none"))


@pytest.mark.thorough
def test_what_cannot_fit_says_how_much_it_needs() -> None:
    with pytest.raises(NotWrittenError) as caught:
        new_recipe(wanted("deepseek-ai/DeepSeek-V3", "h100:8"))
    first, *others = caught.value.problems
    assert "works on h100:8 with SGLang 0.5.23" in first.message
    assert first.help is not None and "GiB on all GPUs together" in first.help
    needed = float(first.help.rpartition("at least ")[2].partition(" GiB")[0])
    assert 8 * 80 < needed < 8 * 141  # 8 x H100 are too small, and 8 x H200 serve it
    assert others and "short" in others[0].message
    made("deepseek-ai/DeepSeek-V3", "h200:8")


def test_a_release_without_the_class_is_told() -> None:
    with pytest.raises(NotWrittenError, match="has no class GptOssForCausalLM"):
        new_recipe(wanted("openai/gpt-oss-20b", "h200:1", "0.4.10.post2"))


def test_what_a_release_does_not_have_is_not_written_for_it() -> None:
    with pytest.raises(NotWrittenError, match=r"STANDALONE needs SGLang 0\.5\.2 or later"):
        new_recipe(wanted("Qwen/Qwen3-30B-A3B", "h200:1", "0.4.6.post5"))


def test_unknown_memory_is_no_reason_to_write() -> None:
    with pytest.raises(NotWrittenError, match="memory unknown") as caught:
        new_recipe(wanted("openbmb/MiniCPM3-4B", "h200:1"))
    assert "is unknown" in caught.value.problems[1].message
    assert "--unknown-memory" in (caught.value.problems[0].help or "")


def test_a_draft_of_unknown_config_is_named_to_pull() -> None:
    with pytest.raises(NotWrittenError) as caught:
        new_recipe(wanted("Qwen/Qwen3-8B", "h100:1", draft="Tengyunw/qwen3_8b_eagle3"))
    assert "`speclaunch models pull Tengyunw/qwen3_8b_eagle3` reads it" in str(caught.value)


def test_a_recipe_of_unknown_memory_is_written_when_it_is_asked_for() -> None:
    found = new_recipe(wanted("openbmb/MiniCPM3-4B", "h200:4", unknown_memory=True))
    assert found.placed.budget.fit is Fit.UNKNOWN
    assert "Memory:   unknown" in found.text
    proven = new_recipe(wanted("Qwen/Qwen3-8B", "h100:1", unknown_memory=True))
    assert proven.text == made("Qwen/Qwen3-8B", "h100:1").text


@pytest.mark.thorough
def test_what_is_known_not_to_fit_is_never_written() -> None:
    with pytest.raises(NotWrittenError, match="short"):
        new_recipe(wanted("deepseek-ai/DeepSeek-V3", "h100:8", unknown_memory=True))


@pytest.mark.thorough
def test_as_many_gpus_as_are_likely_to_do() -> None:
    """Four B200 hold R1 in the best case, at a fraction of 0.99; eight are likely to."""
    found = made("deepseek-ai/DeepSeek-R1", "b200")
    assert found.placed.ranks == 8 and found.planned.budget.fit is Fit.FITS
    assert (found.placed.budget.tokens or 0) >= 1_000_000
    assert not found.placed.warnings


@pytest.mark.thorough
def test_within_the_likely_bound_with_what_that_leaves() -> None:
    found = made("meta-llama/Llama-3.3-70B-Instruct", "h100:2")
    likely = found.planned.margins and found.planned.margins.likely
    assert likely and found.placed.arguments["mem_fraction_static"] <= likely.fraction
    assert found.planned.budget.fit is Fit.FITS
    assert "SPL712" not in {one.code for one in found.planned.findings}


@pytest.mark.thorough
def test_where_nothing_is_likely_to_fit_it_names_the_hardware_and_offers_tight() -> None:
    asked = wanted("nvidia/Qwen3.6-35B-A3B-NVFP4", "rtx4090:1")
    with pytest.raises(NotWrittenError) as caught:
        new_recipe(asked)
    help_ = caught.value.problems[0].help or ""
    assert help_.startswith("use rtx4090:2, where MTP fits")
    assert "--tight writes a recipe that fits only in the best case" in help_
    found = new_recipe(replace(asked, tight=True))
    assert found.planned.budget.fit is Fit.TIGHT
    assert (
        found.placed.warnings[0].startswith("memory is tight: ")
        and "# Warning:  memory is tight:" in found.text
    )
    fitting = new_recipe(replace(wanted("Qwen/Qwen3-14B", "h100:1"), tight=True))
    assert fitting.planned.budget.fit is Fit.FITS  # tight settings are the last resort


@pytest.mark.thorough
def test_a_short_draft_keeps_the_targets_context() -> None:
    found = made("meta-llama/Llama-3.3-70B-Instruct", "h100:4")
    assert (
        found.way.method is SpeculationMethod.EAGLE3
        and "context_length" not in found.placed.arguments
    )
    assert "override engine: short_draft" in found.text
    assert "no findings except SPL403" in found.text
    (warning,) = found.placed.warnings
    assert "4096" in warning and "131072" in warning


@pytest.mark.thorough
def test_a_release_that_does_not_lengthen_a_draft_takes_another_way() -> None:
    """Up to 0.5.2 the draft would read beyond its table: the context would be cut to 4,096."""
    found = made("meta-llama/Llama-3.3-70B-Instruct", "h100:4", "0.5.2")
    assert (
        found.way.method is not SpeculationMethod.EAGLE3
        and "context_length" not in found.placed.arguments
    )
    said = " ".join(found.skipped.values())
    assert "reduces the context from 131,072 to 4,096 tokens" in said


def test_a_context_that_is_requested_is_served() -> None:
    asked = wanted("meta-llama/Llama-3.3-70B-Instruct", "h100:2", context=4096)
    found = new_recipe(asked)
    assert found.placed.arguments["context_length"] == 4096
    assert found.placed.holds_a_request and not found.placed.warnings
    with pytest.raises(InputError, match=r"--context 200000 exceeds the maximum .* \(131072\)"):
        new_recipe(replace(asked, context=200_000))


@pytest.mark.thorough
def test_a_pool_that_is_smaller_than_the_context_is_a_warning_with_both_numbers() -> None:
    found = made("meta-llama/Llama-3.3-70B-Instruct", "h100:2")
    tokens = found.placed.budget.tokens
    assert any(f"{tokens:,}" in one and "131,072" in one for one in found.placed.warnings)


def test_the_header_quotes_the_published_numbers_at_the_setting_of_the_recipe() -> None:
    new = made("meta-llama/Llama-3.1-8B-Instruct", "h100:1", "0.5.23")
    steps, topk, tokens = (new.placed.arguments[name] for name in (STEPS, TOPK, TOKENS))
    measured = new.text.partition("# Measured:")[2].partition("# Facts:")[0]
    assert (steps, topk, tokens) == (7, 1, 8)
    assert f"benchmarks at {steps}/{topk}/{tokens}" in " ".join(measured.replace("#", "").split())
