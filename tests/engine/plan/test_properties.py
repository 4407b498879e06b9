"""What holds for every request, whatever is in it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.argument import Argument
from speclaunch.engine.releases.catalogue import load
from tests.engine.plan.resolving import A100, B200, CPU, H100, LLAMA, MI300X
from tests.engine.plan.test_reasons import unexplained
from tests.support.conformance import data
from tests.support.conformance.compare import checkpoint
from tests.support.loops import rows

VERSIONS = ("0.4.6.post5", "0.5.2", "0.5.3.post3", "0.5.9", "0.5.13.post1", "0.5.18", "0.5.23")
MACHINES = (None, A100, H100, B200, MI300X, CPU)
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO", "X")
MODELS = sorted(data.models())
NUMBERS = st.sampled_from(["-1", "0", "1", "2", "4", "8", "48", "4096", "100000"])
WORDS = st.one_of(
    NUMBERS,
    st.sampled_from(["0.5", "1.5", "auto", "none", "fa3", "triton", "trtllm_mla", "decode", "{}"]),
    st.text("abcXYZ019_=.{}", max_size=6),
)


def values(argument: Argument) -> st.SearchStrategy[list[str]]:
    """The words of one argument: mostly such as its parser takes."""
    flag = argument.flag
    if not argument.kind.takes_value:
        return st.just([flag])
    if argument.choices:
        word: st.SearchStrategy[str] = st.sampled_from([str(one) for one in argument.choices])
    elif argument.type in ("int", "human_readable_int"):
        word = NUMBERS
    elif argument.type == "float":
        word = st.sampled_from(["0.0", "0.5", "0.88", "1.5"])
    else:
        word = WORDS
    return word.map(lambda one: [flag, one])


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A version, and a command line of its arguments."""
    version = draw(st.sampled_from(VERSIONS))
    catalogue = load(version)
    words = ["--model-path", draw(st.sampled_from(["m", *MODELS]))]
    if draw(st.booleans()):
        words += ["--speculative-algorithm", draw(st.sampled_from(ALGORITHMS))]
    arguments = sorted({one.flag: one for one in catalogue.arguments.values()}.items())
    speculative = [one for flag, one in arguments if flag.startswith("--speculative")]
    some = st.one_of(st.sampled_from(speculative), st.sampled_from([one for _, one in arguments]))
    for argument in draw(st.lists(some, max_size=8)):
        words += draw(values(argument))
    return version, words


@pytest.mark.thorough
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(requests(), st.sampled_from(MACHINES), st.booleans(), st.booleans())
def test_resolution_never_fails(
    asked: tuple[str, list[str]], machine: Any, known: bool, drafts: bool
) -> None:
    """It does not raise, explains what it sets, and gives the same again from the same."""
    version, words = asked
    request = from_words(words, {}, load(version))
    path = request.values["model_path"].value if "model_path" in request.values else "m"
    target = checkpoint(str(path)) if known else None
    draft = LLAMA if drafts else None
    facts = Facts(target, draft, machine)
    before = copy.deepcopy((dict(request.values), dict(request.env)))
    plan = resolve(request, facts)
    assert not unexplained(plan)
    for name in {*plan.resolved, *request.values}:
        try:
            plan.value(name)
        except UnknownValueError:
            assert name in plan.undecided or not request.values[name].known
    assert resolve(request, facts) == plan
    assert (dict(request.values), dict(request.env)) == before


@rows("version", VERSIONS)
def test_a_resolved_plan_is_a_fixed_point_where_values_are_given(version: str) -> None:
    """Asking for the effective parameters outright gives the same parameters."""
    words = ["--model-path", "m", "--speculative-algorithm", "EAGLE3"]
    words += ["--speculative-draft-model-path", "d"]
    facts = Facts(LLAMA, LLAMA, H100)
    first = resolve(from_words(words, {}, load(version)), facts)
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    for name in (*names, "max_running_requests"):
        words += ["--" + name.replace("_", "-"), str(first.value(name))]
    again = resolve(from_words(words, {}, load(version)), facts)
    for name in (*names, "max_running_requests", "chunked_prefill_size"):
        assert again.value(name) == first.value(name)
