"""Builds of SGLang: official container images by tag, and forks recognized by their arguments.

Image tags come from SGLang's release workflow (`.github/workflows/release-docker.yml` and
`_docker-build-and-publish.yml`) and published manifests. Up to 0.5.2 every tag had a CUDA suffix;
`v0.5.3` is the first tag without one. The image without a suffix contains CUDA 12.9 up to 0.5.10,
and CUDA 13.0 from 0.5.11 on. From 0.5.11 on, the `-cu129` image contains CUDA 12.9.

Arguments of forks are read from each fork's documentation or patch. An argument that a release also
has does not identify a fork: releases from 0.5.4.post3 on have `--kt-cpuinfer`.
"""

from __future__ import annotations

from msgspec import Struct

from speclaunch.engine.releases.versions import within

REPOSITORY = "lmsysorg/sglang"
ROUTER_IMAGE = "lmsysorg/sgl-model-gateway:v0.3.2"
"""Image of the last release of sglang_router, which is versioned separately (PyPI: sglang-router
0.3.2). It routes to every release of the engine."""

_CUDA_SUFFIX = (("<0.4.8", "-cu124"), ("<0.5.3", "-cu126"))
"""CUDA suffixes of image tags, by release: v0.4.7.post1-cu124, v0.4.8.post1-cu126 …
v0.5.2-cu126."""
_ROCM_SUFFIX = (
    ("<0.4.10", "-rocm630"),
    ("<0.5.3", "-rocm630-mi30x"),
    (">=0.5.3", "-rocm700-mi30x"),
)
"""ROCm suffixes of image tags, by release: v0.4.9-rocm630, v0.4.10.post2-rocm630-mi30x,
v0.5.3.post3-rocm700-mi30x."""
_NEWER_AMD = ("mi350", "mi355")
"""GPUs that use the image variant `-mi35x`, from 0.5.3 on."""


def official_image(version: str, *, vendor: str = "nvidia", gpu: str = "") -> str | None:
    """Return a release's image for `vendor` GPUs; None unless `vendor` is nvidia or amd.

    `gpu` is the GPU's name in `--hardware`.
    """
    if vendor == "nvidia":
        return f"{REPOSITORY}:v{version}{_suffix(_CUDA_SUFFIX, version)}"
    if vendor == "amd":
        found = _suffix(_ROCM_SUFFIX, version)
        if gpu.startswith(_NEWER_AMD):
            found = found.replace("-mi30x", "-mi35x")
        return f"{REPOSITORY}:v{version}{found}"
    return None


def _suffix(table: tuple[tuple[str, str], ...], version: str) -> str:
    return next((suffix for versions, suffix in table if within(version, versions)), "")


class KnownFork(Struct, frozen=True):
    """A fork: its name, the prefixes of its arguments, and the package that provides it."""

    name: str
    begins: tuple[str, ...]
    """Argument prefixes as recipes write them: `kt_`."""
    package: str
    algorithms: tuple[str, ...] = ()
    """Values of `speculative_algorithm` that no release has."""


FORKS = (
    KnownFork(
        "KTransformers' fork",
        ("kt_",),
        "the package sglang-kt",
        # kvcache-ai/ktransformers doc/en/kt-kernel/experts-sched-Tutorial.md: --kt-numa-nodes,
        # --kt-expert-placement-strategy, --kt-gpu-prefill-token-threshold
    ),
    KnownFork(
        "SpecForge's patch for capturing hidden states",
        ("spec_capture_", "enable_spec_capture"),
        "a release with patches/sglang/VERSION/spec-capture.patch of SpecForge",
        # sgl-project/SpecForge patches/sglang/v0.5.14/spec-capture.patch: --enable-spec-capture,
        # --spec-capture-method, --spec-capture-aux-layer-ids
    ),
    KnownFork(
        "EAGLE-4's fork (eagle-harness)",
        ("speculative_algorithm_config",),
        "a build such as 0.5.23.dev252+eagle.9",
        # reported by its users: EAGLE_HARNESS with --speculative-algorithm-config; no public
        # repository was found on 2026-11-24
        ("EAGLE_HARNESS",),
    ),
)


def fork_with(name: str) -> KnownFork | None:
    """Return the fork that adds an argument unknown to all releases; None if no known fork does."""
    return next((fork for fork in FORKS if name.startswith(fork.begins)), None)


def fork_with_algorithm(name: str) -> KnownFork | None:
    """Return the fork that adds a speculative algorithm; None if no known fork does."""
    return next((fork for fork in FORKS if name in fork.algorithms), None)
