"""NVIDIA Dynamo's ``python -m dynamo.sglang``, which mixes SGLang's arguments with Dynamo's.

Dynamo's parser consumes its own options first and passes all others to SGLang's. A file seldom
states Dynamo's release, so the options of releases 0.4.1 to 1.6.1 are all recognized (ai-dynamo's
wheels: dynamo/sglang/args.py and backend_args.py, dynamo/common/configuration/groups/*.py). None
of them is an SGLang argument, except `--enable-multimodal`, which is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.interface import Dropped, Invocation, Word

_SWITCHES = frozenset(
    [
        *("--dedicated-mm-encoder", "--embedding-worker", "--enable-rl", "--fpm-trace"),
        *("--image-diffusion-worker", "--multimodal-encode-worker", "--multimodal-processor"),
        *("--multimodal-worker", "--use-sglang-tokenizer", "--video-generation-worker"),
        *("--frontend-decoding", "--load-aware", "--durable-kv-events", "--enforce-disagg"),
        *("--exclude-tools-when-tool-choice-none", "--dyn-enable-structural-tag"),
        *("--multimodal-embedding-cache-publisher", "--nats-tls-insecure", "--tcp-tls-insecure"),
        *("--use-remote-indexer", "--router-assume-kv-reuse", "--router-conditional-disagg"),
        *("--router-durable-kv-events", "--router-kv-events", "--router-replica-sync"),
        *("--router-reset-states", "--router-track-active-blocks", "--enable-local-indexer"),
        *("--router-track-output-blocks", "--router-track-prefill-tokens", "--version"),
        *("--assume-kv-reuse", "--kv-events", "--track-active-blocks", "--track-output-blocks"),
    ]
)
_VALUES = frozenset(
    [
        *("--endpoint", "--namespace", "--migration-limit", "--store-kv", "--request-plane"),
        *("--response-plane", "--event-plane", "--discovery-backend", "--kv-state-endpoint"),
        *("--dyn-tool-call-parser", "--dyn-reasoning-parser", "--dyn-endpoint-types"),
        *("--dyn-default-thinking-mode", "--dyn-structural-tag-schema", "--engine-route"),
        *("--dyn-structural-tag-scope", "--dyn-structural-tag", "--custom-jinja-template"),
        *("--endpoint-types", "--dump-config-to", "--embedding-transfer-mode"),
        *("--sglang-trace-level", "--engine-request-limit", "--health-check-payload"),
        *("--media-output-fs-url", "--media-output-http-url", "--kv-overlap-score-weight"),
        *("--multimodal-embedding-cache-capacity-gb", "--nats-tls-ca-cert-path"),
        *("--nats-tls-client-cert-path", "--nats-tls-client-key-path", "--admission-control"),
        *("--tcp-tls-ca-cert-path", "--tcp-tls-cert-path", "--tcp-tls-client-ca-cert-path"),
        *("--tcp-tls-client-cert-path", "--tcp-tls-client-key-path", "--tcp-tls-key-path"),
        *("--tcp-tls-handshake-timeout", "--tcp-tls-server-name", "--shared-cache-multiplier"),
        *("--shared-cache-type", "--active-decode-blocks-threshold", "--disagg-config"),
        *("--active-prefill-tokens-threshold", "--active-prefill-tokens-threshold-frac"),
    ]
)
_LISTS = frozenset({"--connector", "--output-modalities"})
_PREFIXES = ("--router-", "--aic-")
"""Prefixes of Dynamo options that are not listed above. These options all have a value."""
_SECTIONS = {"--disagg-config": "--disagg-config-key", "--config": "--config-key"}
"""Options that name a file, each with the option that names SGLang's section in it."""
_KEYS = frozenset(_SECTIONS.values())

_MODE = "--disaggregation-mode"
_NULL_MODES = frozenset({"agg", "pd"})
_DROPPED_MODE = "encode"
"""Disaggregation mode that only Dynamo has (args.py, _normalize_multimodal_disaggregation_args)."""

_OWN = "an option of Dynamo"

# first Dynamo release with each SGLang version, from the metadata of ai-dynamo's wheels
_RELEASES = (
    ((0, 4, 0), "0.4.9.post6"),
    ((0, 4, 1), "0.5.0rc2"),
    ((0, 6, 0), "0.5.3.post2"),
    ((0, 7, 0), "0.5.4.post3"),
    ((0, 8, 0), "0.5.6.post2"),
    ((0, 9, 0), "0.5.8"),
    ((1, 0, 0), "0.5.9"),
    ((1, 1, 0), "0.5.10.post1"),
    ((1, 2, 0), "0.5.11"),
    ((1, 3, 0), "0.5.14"),
    ((1, 4, 0), "0.5.16"),
    ((1, 5, 0), "0.5.18"),
    ((1, 6, 0), "0.5.21"),
)
_NEWEST = (1, 6)
"""Last minor release of Dynamo with a known SGLang version."""
_IMAGE = lazy(r"(?:^|/)(?:ai-)?(?:dynamo|sglang-runtime)\b|/ai-dynamo/")
_TAG = lazy(
    r":v?(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?(?:-(?:cuda\d+|efa|arm64|amd64|runtime|ubuntu[\d.]+))*\Z"
)
"""Pattern of a release tag.

Builds for one model (`1.3.0-glm-5.2-dev.1`) do not match, because their SGLang versions differ.
"""


def is_image(image: str) -> bool:
    """True for a Dynamo image, whose tag is a Dynamo release."""
    return _IMAGE.search(image) is not None


def sglang_release(image: str) -> str | None:
    """Return the SGLang release in a Dynamo image, from its tag; None if unknown."""
    found = _TAG.search(image)
    if found is None:
        return None
    release = (int(found[1]), int(found[2]), int(found[3]))
    if release[:2] > _NEWEST:
        return None
    fitting = [version for first, version in _RELEASES if first <= release]
    return fitting[-1] if fitting else None


def without_own(invocation: Invocation) -> Invocation:
    """Return a Dynamo command with only the tokens that SGLang's parser gets."""
    words: list[Word] = []
    dropped: list[Dropped] = []
    for group, own in _groups(invocation.words):
        if own is None:
            words += group
        else:
            text = " ".join(word.text for word in group)
            dropped.append(Dropped(text, group[0].place, own))
    words, more = _handed_on(words)
    words = _section(invocation.words, words)
    return replace(invocation, words=tuple(words), dropped=(*invocation.dropped, *dropped, *more))


def _groups(words: Sequence[Word]) -> Iterator[tuple[list[Word], str | None]]:
    """Yield groups of tokens, each with the reason to drop it, or None for SGLang's tokens."""
    at = 0
    while at < len(words):
        name, equals, _ = words[at].text.partition("=")
        size = 1
        own = words[at].text.startswith("--") and _is_own(name)
        if own and not equals:
            if name in _LISTS:
                while at + size < len(words) and not words[at + size].text.startswith("-"):
                    size += 1
            elif not _is_switch(name):
                size = 2
        yield list(words[at : at + size]), _OWN if own else None
        at += size


def _is_switch(name: str) -> bool:
    return name in _SWITCHES or f"--{name.removeprefix('--no-')}" in _SWITCHES


def _is_own(name: str) -> bool:
    is_listed = name in _VALUES or name in _LISTS or name in _KEYS
    return is_listed or _is_switch(name) or name.startswith(_PREFIXES)


def _handed_on(words: Sequence[Word]) -> tuple[list[Word], list[Dropped]]:
    """Return the tokens that SGLang's parser gets, and those that Dynamo replaces.

    Dynamo replaces some disaggregation modes and `--load-format gms`.
    """
    remaining: list[Word] = []
    dropped: list[Dropped] = []
    at = 0
    while at < len(words):
        name, equals, value = words[at].text.partition("=")
        size = 1 if equals else 2
        if not equals and at + 1 < len(words):
            value = words[at + 1].text
        why = _replaced(name, value)
        if why is not None:
            text = " ".join(word.text for word in words[at : at + size])
            dropped.append(Dropped(text, words[at].place, why))
            at += size
            continue
        remaining.append(words[at])
        at += 1
    return remaining, dropped


def _replaced(name: str, value: str) -> str | None:
    if name == _MODE and value in _NULL_MODES:
        return "Dynamo replaces it with `null`, SGLang's default"
    if name == _MODE and value == _DROPPED_MODE:
        return "Dynamo starts its own encode worker for it"
    if name == "--load-format" and value == "gms":
        return "Dynamo sets its own loader"
    return None


def _section(section: Sequence[Word], words: list[Word]) -> list[Word]:
    """Return `words`, plus `--config` if `section` names a file for SGLang."""
    texts = [word.text.partition("=")[0] for word in section]
    for option, key in _SECTIONS.items():
        if option not in texts or key not in texts:
            continue
        at = texts.index(option)
        flag = section[at]
        value = section[at] if "=" in flag.text else section[min(at + 1, len(section) - 1)]
        text = value.text.removeprefix(f"{option}=")
        why = "SGLang gets one section of this file, which is not read here"
        file = replace(value, text=text, evaluated=False, inside=True, why=why)
        rest = [w for w in words if w is not flag and w is not value]
        return [*rest, replace(flag, text="--config"), file]
    return words
