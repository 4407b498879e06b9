"""Forks of SGLang, recognized by arguments that no release has.

Source: each fork's own documentation or patch. An argument that a release also has does not
identify a fork: releases from 0.5.4.post3 on have `--kt-cpuinfer`.
"""

from __future__ import annotations

from msgspec import Struct


class KnownFork(Struct, frozen=True):
    """A fork: its name, the prefixes of its arguments, and its installation."""

    name: str
    begins: tuple[str, ...]
    """Argument prefixes as recipes write them: `kt_`."""
    package: str
    source: str
    """Documentation of the fork's arguments."""
    algorithms: tuple[str, ...] = ()
    """Values of `speculative_algorithm` that no release has."""


FORKS = (
    KnownFork(
        "KTransformers' fork",
        ("kt_",),
        "the package sglang-kt",
        "kvcache-ai/ktransformers doc/en/kt-kernel/experts-sched-Tutorial.md: --kt-numa-nodes, "
        "--kt-expert-placement-strategy, --kt-gpu-prefill-token-threshold",
    ),
    KnownFork(
        "SpecForge's patch for capturing hidden states",
        ("spec_capture_", "enable_spec_capture"),
        "a release with patches/sglang/VERSION/spec-capture.patch of SpecForge",
        "sgl-project/SpecForge patches/sglang/v0.5.14/spec-capture.patch: --enable-spec-capture, "
        "--spec-capture-method, --spec-capture-aux-layer-ids",
    ),
    KnownFork(
        "EAGLE-4's fork (eagle-harness)",
        ("speculative_algorithm_config",),
        "a build such as 0.5.23.dev252+eagle.9",
        "reported by its users: EAGLE_HARNESS with --speculative-algorithm-config; no public "
        "repository was found on 2026-11-24",
        ("EAGLE_HARNESS",),
    ),
)


def fork_with(name: str) -> KnownFork | None:
    """Return the fork that adds an argument unknown to all releases; None if no known fork does."""
    return next((fork for fork in FORKS if name.startswith(fork.begins)), None)


def fork_with_algorithm(name: str) -> KnownFork | None:
    """Return the fork that adds a speculative algorithm; None if no known fork does."""
    return next((fork for fork in FORKS if name in fork.algorithms), None)
