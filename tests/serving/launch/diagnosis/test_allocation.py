"""The figures of torch's allocator."""

from __future__ import annotations

from speclaunch.serving.launch.diagnosis.causes.memory import allocation
from speclaunch.serving.launch.diagnosis.diagnose import diagnose
from tests.serving.launch.diagnosis.test_corpus import CORPUS
from tests.support.loops import rows

GPU = "GPU 0 has a total capacity of 79.10 GiB of which"


@rows(
    "message, numbers",
    [
        (
            f"CUDA out of memory. Tried to allocate 1.25 GiB. {GPU} 812.88 MiB is free. Process",
            {"asked_gib": 1.25, "free_gib": 0.7938},
        ),
        (
            f"HIP out of memory. Tried to allocate 512.00 MiB. {GPU} 0 bytes is free.",
            {"asked_gib": 0.5, "free_gib": 0.0},
        ),
        ("CUDA out of memory. Tried to allocate 20.00 MiB.", {}),
        ("CUDA out of memory", {}),
        (f"Tried to allocate ... GiB. {GPU} 1.2.3 GiB is free", {}),
        ("", {}),
    ],
)
def test_asked_and_free(message: str, numbers: dict[str, float]) -> None:
    assert allocation(message) == numbers


def test_a_log_has_them() -> None:
    logs = [path.read_text(errors="replace") for path in CORPUS.glob("*.log")]
    with_figures = [text for text in logs if "Tried to allocate 1.25 GiB" in text]
    assert with_figures
    for text in with_figures:
        assert diagnose(text.splitlines()).numbers["asked_gib"] == 1.25
