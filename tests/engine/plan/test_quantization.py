"""What a release makes of `quantization` and the checkpoint (`_verify_quantization`)."""

from __future__ import annotations

from typing import Any

import pytest

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.settings import UnknownValueError
from speclaunch.engine.plan.topics.target import Absence, absence, method_of
from tests.engine.plan.resolving import CPU, H100, MI300X, plan
from tests.support.loops import rows

NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
FP8 = {"quant_algo": "FP8"}
MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}


def made_as(said: Any = None, architecture: str = "LlamaForCausalLM", **fields: Any) -> Checkpoint:
    raw = {} if said is None else {"quantization_config": said}
    return Checkpoint("m", architectures=(architecture,), raw=raw, **fields)


def asked(version: str, words: str, target: Checkpoint, amd: bool = False) -> Plan:
    hardware = MI300X if amd else H100
    words = f"--quantization {words}" if words else ""
    return plan(version, words, target=target, hardware=hardware)


def by(method: str) -> dict[str, str]:
    return {"quant_method": method}


@rows(
    "version, words, said, used, contradicted",
    [
        ("0.5.23", "", None, None, False),
        ("0.5.23", "fp8", None, "fp8", False),
        ("0.5.23", "unquant", by("fp8"), "fp8", False),
        ("0.5.23", "", by("FP8"), "fp8", False),
        ("0.5.23", "awq", by("fp8"), "awq", True),
        ("0.5.23", "modelopt", by("fp8"), "modelopt", True),
        ("0.5.17", "modelopt_fp4", by("fp8"), "modelopt_fp4", True),
        ("0.5.18", "modelopt_fp4", by("fp8"), "modelopt_fp4", False),
        ("0.5.23", "w4afp8", by("fp8"), "w4afp8", True),
        ("0.5.23", "mxfp4", by("fp8"), "mxfp4", True),
        ("0.5.9", "w8a8_fp8", by("compressed-tensors"), "w8a8_fp8", False),
        ("0.5.23", "auto-round-int8", by("compressed-tensors"), "auto-round-int8", False),
        ("0.5.23", "w8a8_fp8", by("fbgemm_fp8"), "w8a8_fp8", True),
        ("0.5.16", "quark_mxfp4", by("fp8"), "quark_mxfp4", True),
        ("0.5.17", "quark_mxfp4", by("fp8"), "quark_mxfp4", False),
        ("0.5.16", "humming", by("fp8"), "humming", False),
        ("0.5.16", "humming", by("mxfp4"), "humming", True),
        ("0.5.23", "awq_marlin", by("awq"), "awq_marlin", False),
        ("0.5.23", "moe_wna16", by("gptq"), "moe_wna16", False),
        ("0.5.23", "awq_marlin", by("gptq"), "awq_marlin", True),
        ("0.5.23", "fp8", NVFP4, "modelopt_fp4", False),
        ("0.5.9", "fp8", NVFP4, "fp8", True),
        ("0.5.9", "modelopt_fp8", NVFP4, "modelopt_fp8", False),
        ("0.5.9", "", NVFP4, "modelopt", False),
        ("0.5.23", "", FP8, "modelopt_fp8", False),
        ("0.5.9", "", FP8, "modelopt_fp8", False),
        ("0.5.8.post1", "", FP8, "", False),
        ("0.5.8.post1", "awq", FP8, "awq", False),
        ("0.5.23", "nvfp4_online", FP8, "nvfp4_online", False),
        ("0.5.17", "nvfp4_online", FP8, "nvfp4_online", True),
        ("0.5.17", "", {"quant_algo": "MXFP8"}, "modelopt_fp8", False),
        ("0.5.18", "", {"quant_algo": "MXFP8"}, "mxfp8", False),
        ("0.5.14", "", MIXED, "w4afp8", False),
        ("0.5.14", "mxfp8", MIXED, "mxfp8", True),
    ],
)
def test_argument_and_checkpoint(
    version: str, words: str, said: Any, used: str | None, contradicted: bool
) -> None:
    found = method_of(asked(version, words, made_as(said)))
    assert (found.used, found.contradicted) == (used, contradicted)


def test_a_mixture_is_named_by_its_layers_or_its_family() -> None:
    held = made_as(MIXED, quantization="modelopt_mixed")
    assert method_of(asked("0.5.23", "fp8", held)).used == "modelopt_mixed"
    nemotron = made_as(MIXED, "NemotronHForCausalLM")
    assert method_of(asked("0.5.10.post1", "", nemotron)).used == "modelopt_mixed"


def test_the_file_beside_the_config() -> None:
    held = made_as(quantization="modelopt_fp4", quantization_config={"quant_algo": "NVFP4"})
    assert method_of(asked("0.5.8.post1", "", held)).used == "modelopt_fp4"


def test_the_part_of_a_kimi_speaks_for_the_whole() -> None:
    inner = {"text_config": {"quantization_config": by("compressed-tensors")}}
    kimi = Checkpoint("m", architectures=("KimiK25ForConditionalGeneration",), raw=inner)
    assert method_of(asked("0.5.23", "modelopt_mixed", kimi)).contradicted
    other = Checkpoint("m", architectures=("X",), raw=inner, quantization="compressed-tensors")
    with pytest.raises(UnknownValueError):
        method_of(asked("0.5.23", "modelopt_mixed", other))


@rows(
    "version, words, said",
    [
        ("0.5.23", "", {"quant_method": "modelopt"}),
        ("0.5.23", "", {"quant_algo": "NF4"}),
        ("0.5.23", "modelopt", {"quant_algo": "MXFP8"}),
        ("0.5.9", "modelopt", NVFP4),
        ("0.5.3.post3", "", {"quant_algo": "FP8", "quant_method": None}),
        ("0.5.18", "marlin", by("gptq")),
    ],
)
def test_what_is_not_known(version: str, words: str, said: Any) -> None:
    if version == "0.5.3.post3":
        held = made_as(quantization="modelopt", quantization_config={"quant_algo": "FP8"})
    else:
        held = made_as(said)
    with pytest.raises(UnknownValueError):
        method_of(asked(version, words, held))


def test_amd_reads_nvfp4_with_a_kernel_of_its_own() -> None:
    assert method_of(asked("0.5.9", "", made_as(NVFP4), amd=True)).used == "petit_nvfp4"
    assert method_of(asked("0.5.9", "awq_marlin", made_as(by("awq")), amd=True)).contradicted


@rows(
    "version, method, amd, missing",
    [
        ("0.5.23", "fp8", True, None),
        ("0.5.23", "modelopt_fp4", True, Absence.ROCM),
        ("0.5.23", "modelopt_fp4", False, None),
        ("0.5.19", "gptq", True, None),
        ("0.5.20", "gptq", False, Absence.UNKNOWN),
        ("0.5.23", "mlx_q4", False, Absence.UNKNOWN),
        ("0.5.3.post3", "mlx_q4", False, None),
        ("0.5.15.post1", "fbgemm_fp8", False, None),
        ("0.5.16", "fbgemm_fp8", False, Absence.UNKNOWN),
    ],
)
def test_what_gpus_have(version: str, method: str, amd: bool, missing: Absence | None) -> None:
    assert absence(asked(version, "", made_as(), amd=amd), method) is missing


def test_other_devices_have_methods_of_their_own() -> None:
    found = plan("0.5.23", target=made_as(), hardware=CPU)
    assert absence(found, "gptq") is None
    nowhere = plan("0.5.23", target=made_as(), hardware=None)
    assert absence(nowhere, "fbgemm_fp8") is Absence.UNKNOWN
