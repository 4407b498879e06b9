"""What bench says of published acceptance, and the profile that it writes of a draft."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.app.output.bench import certificate_markdown, published, single_markdown
from speclaunch.app.verbs.bench import _text, output
from speclaunch.app.verbs.options import CertificateFormat
from speclaunch.checks.rules.examine import Lookup
from speclaunch.core.errors import InputError
from speclaunch.measure.bench.certificate import certificate, single
from speclaunch.measure.bench.engines import RunningSide
from speclaunch.measure.bench.measurement import ExpectedSide, Round
from speclaunch.measure.bench.published import (
    LEAST_STEPS,
    speculation_of,
    speculation_profile,
    with_published,
)
from speclaunch.measure.bench.schema import SingleDocument
from speclaunch.measure.bench.sides import SideOptions, candidate
from tests.support.measure.bench.making import PLAIN, a_round

TARGET = "meta-llama/Llama-3.1-8B-Instruct"
DRAFT = "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge"


def server(**info: Any) -> RunningSide:
    reported = {
        "model_path": TARGET, "speculative_algorithm": "EAGLE3", "version": "0.5.23",
        "speculative_draft_model_path": DRAFT, "speculative_num_steps": 5,
        "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 6,
    }  # fmt: skip
    return RunningSide("R", "http://h:1", None, {**reported, **info}, ExpectedSide("R", True, 6))


def rounds(positions: tuple[int, ...], workload: str = "chat", side: str = "R") -> list[Round]:
    """Rounds of 4 requests each, whose verify steps accepted 0, 1, 2, … drafts so often."""
    steps = sum(positions)
    tokens = sum(count * (accepted + 1) for accepted, count in enumerate(positions))
    changes = {"positions": positions, "verify_steps": steps, "tokens": tokens}
    return [replace(a_round(side, n, **changes), workload=workload) for n in range(4)]


def measured(positions: tuple[int, ...], workload: str = "chat", **more: Any) -> SingleDocument:
    return single("R", rounds(positions, workload), (), simulated={}, **more)


def lines(document: Any) -> list[str]:
    return [line for line, _ in published(document)]


def test_a_deployment_within_the_published_lengths() -> None:
    found = with_published(measured((10, 10, 10, 10, 0, 0)), server())
    (cell,) = found.published
    assert cell.accept_length == pytest.approx(2.5) and not cell.far_below
    assert 1.9 < cell.lowest < cell.typical < cell.highest < 5
    (line,) = lines(found)
    assert "2.50, published 2.04 to" in line and "far below" not in line
    for condition in ("here chat", "SGLang; here SGLang 0.5.23", "temperature 0", "H200"):
        assert condition in line
    assert "data.json" in line  # the source


def test_a_deployment_far_below_says_so_in_every_form() -> None:
    found = with_published(measured((40, 4, 0, 0, 0, 0)), server())
    assert found.published[0].far_below
    assert "far below the published" in lines(found)[0]
    assert "far below the published" in single_markdown(found)
    assert "far below the published" in _text(found, CertificateFormat.TEXT)
    both = rounds((40, 4, 0, 0, 0, 0)) + [a_round("plain", n, **PLAIN) for n in range(4)]
    proof = with_published(certificate("R", "plain", both, ()), server())
    assert proof.published[0].far_below
    assert "far below the published" in certificate_markdown(proof)
    assert "far below the published" in _text(proof, CertificateFormat.TEXT)


@pytest.mark.parametrize(
    ("document", "side", "why"),
    [
        (measured((1, 1, 1, 1, 0, 0)), server(), "few steps"),
        (measured((40, 4, 0, 0, 0, 0), "random"), server(), "random tokens"),
        (measured((40, 4, 0, 0, 0, 0)), server(speculative_draft_model_path="o/none"), "unknown"),
        (measured((40, 4, 0, 0, 0, 0)), server(speculative_eagle_topk=4), "a tree"),
        (measured((40, 4, 0, 0, 0, 0)), server(speculative_algorithm="NGRAM"), "no draft"),
        (measured((40, 4, 0, 0, 0, 0)), server(speculative_num_draft_tokens="x"), "no number"),
        (replace(measured((40, 4, 0, 0, 0, 0)), caveats=("simulated",)), server(), "simulated"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_compared(document: SingleDocument, side: RunningSide, why: str) -> None:
    found = with_published(document, side)
    assert found.speculation is not None and found.published == (), why


def test_the_least_steps() -> None:
    enough = LEAST_STEPS // 16
    assert with_published(measured((enough, 0, 0, 0, 0, 0)), server()).published == ()
    assert with_published(measured((enough + 1, 0, 0, 0, 0, 0)), server()).published


def test_another_length_and_export_are_stated() -> None:
    other = "unsloth/Llama-3.1-8B-Instruct"
    steps = {"speculative_num_steps": 4, "speculative_num_draft_tokens": 5}
    found = with_published(measured((20, 20, 20, 0, 0)), server(model_path=other, **steps))
    (line,) = lines(found)
    assert "3/1/4, converted; here 5 tokens" in line and f"target {TARGET}; here {other}" in line


def test_the_targets_own_layers() -> None:
    own = {"model_path": "zai-org/GLM-5.2-FP8", "speculative_draft_model_path": None}
    for path in (None, "zai-org/GLM-5.2-FP8"):
        side = server(
            **{**own, "speculative_draft_model_path": path}, speculative_algorithm="EAGLE"
        )
        found = with_published(measured((20, 20, 20, 0, 0, 0)), side)
        assert "SPEED-Bench coding" in lines(found)[0]
        assert speculation_profile(found)["method"] == "mtp"


def test_the_speculation_of_a_recipe() -> None:
    options = SideOptions((), "0.5.23", Lookup(), dry_run=True)
    found = speculation_of(candidate(["recipe=eagle3_qwen3_235b"], options))
    assert found is not None
    assert (found.algorithm, found.target) == ("EAGLE3", "Qwen/Qwen3-235B-A22B")
    assert found.draft == "lmsys/Qwen3-235B-A22B-EAGLE3" and found.engine == "0.5.23"
    assert (found.num_steps, found.eagle_topk, found.num_draft_tokens) == (3, 1, 4)
    plain = replace(server(), expected=ExpectedSide("R", speculates=False))
    assert speculation_of(plain) is None
    assert with_published(measured((1, 1)), plain).speculation is None


KEYS = {
    *("schema_version", "measured", "method", "draft_checkpoint", "target_model"),
    *("num_speculative_tokens", "block_size", "max_supported_k", "verification_method"),
    *("conditional_accept_rates", "marginal_accept_rates", "mean_accept_length"),
    *("mean_accept_length_per_request", "accept_length_model", "accept_length_by_k"),
    *("acceptance_length_histogram", "per_category", "measurement_conditions", "validation"),
}
"""What `build_profile` of Model-Optimizer #2247 writes."""


def test_a_profile_has_the_form_of_model_optimizer() -> None:
    """Rates by draft position: entry 0 is the first draft token, which a length of 2 accepts."""
    found = speculation_profile(with_published(measured((2, 0, 1, 1, 0, 0)), server()))
    assert found.keys() == KEYS and found["schema_version"] == "1.0" and found["measured"] is True
    assert found["marginal_accept_rates"] == [0.5, 0.5, 0.25, 0.0, 0.0]  # nothing ended at 2
    assert found["conditional_accept_rates"] == [0.5, 1.0, 0.5, 0.0, 0.0]
    assert found["mean_accept_length"] == 2.25
    assert found["mean_accept_length_per_request"] == 2.25
    assert found["acceptance_length_histogram"] == {"1": 32, "3": 16, "4": 16}
    assert found["num_speculative_tokens"] == 5 and found["accept_length_by_k"] == {"5": 2.25}
    assert (found["method"], found["accept_length_model"]) == ("eagle3", "chain_analytic")
    assert found["draft_checkpoint"] == {"id": DRAFT} and found["target_model"] == {"id": TARGET}
    assert found["block_size"] is None and found["verification_method"] == "longest_prefix"
    assert found["per_category"] == {"chat": {"mean_accept_length": 2.25}}
    check = found["validation"]["mean_consistency"]
    assert check["passed"] and check["implied_mean_accept_length"] == 2.25
    assert found["validation"]["marginal_monotonicity"] == {"passed": True, "violations": []}
    assert found["measurement_conditions"]["engine_version"] == "0.5.23"


def test_a_profile_of_a_block_and_of_a_tree() -> None:
    """Their lengths at another width must be measured."""
    block = server(
        speculative_algorithm="DFLASH", speculative_num_steps=None, speculative_num_draft_tokens=8
    )
    found = speculation_profile(with_published(measured((1, 1, 1)), block))
    assert (found["num_speculative_tokens"], found["block_size"]) == (7, 8)
    assert found["accept_length_model"] == "measured_per_k" and found["method"] == "dflash"
    tree = server(speculative_eagle_topk=4, speculative_num_draft_tokens=16)
    found = speculation_profile(with_published(measured((1, 1, 1)), tree))
    assert found["num_speculative_tokens"] == 5 and found["accept_length_model"] == "measured_per_k"


def test_a_profile_that_misses_accepted_tokens_fails_its_check() -> None:
    narrow = server(speculative_num_steps=1, speculative_num_draft_tokens=2)
    found = speculation_profile(with_published(measured((1, 1, 6)), narrow))
    assert not found["validation"]["mean_consistency"]["passed"]


def test_a_profile_names_no_local_path() -> None:
    paths = {"model_path": "/mnt/secret/o/target", "speculative_draft_model_path": "/mnt/x/o/draft"}
    found = speculation_profile(with_published(measured((1, 1, 1)), server(**paths)))
    assert found["target_model"] == {"id": "o/target"}
    assert found["draft_checkpoint"] == {"id": "o/draft"}


def test_without_a_histogram_there_is_no_profile() -> None:
    for document in (measured((1, 1)), with_published(measured(()), server())):
        with pytest.raises(InputError, match="verify steps by accepted"):
            speculation_profile(document)


def test_the_file_name_implies_the_profile(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value, name in (
        ("speculation_profile", "speculation_profile.json"),
        ("speculation_profile.json", "speculation_profile.json"),
        ("speculation_profile=mine.json", "mine.json"),
        ("mine.json", None),
    ):
        ((path, form),) = output(CertificateFormat.TEXT, [value]).files
        assert (form is CertificateFormat.SPECULATION_PROFILE) == (name is not None)
        assert path.name == (name or "mine.json")
    document = with_published(measured((2, 0, 1, 1, 0, 0)), server())
    text = _text(document, CertificateFormat.SPECULATION_PROFILE)
    assert json.loads(text) == speculation_profile(document)
