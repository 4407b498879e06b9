"""Rules about addresses, ports, keys, slime, and speculation in both roles."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.roles import Conflict, rule_of_roles
from speclaunch.checks.rules.values import KEYS_OF_A_COMMAND, written_secrets
from speclaunch.core import lazy
from speclaunch.deployments import OWN
from speclaunch.engine import Plan, RequestOrigin

_OPEN = ("0.0.0.0", "::")  # noqa: S104


@rule("SPL801")
def open_address(plan: Plan) -> Iterator[Verdict]:
    """Report a server that listens on every address without an API key."""
    if plan.user_value("host") not in _OPEN or plan.is_set("api_key"):
        return
    if plan.request.origin is RequestOrigin.SLIME:  # only its own router reaches its engines
        return
    if _has_a_network(plan):
        return
    yield Verdict(
        f"the server listens on {plan.user_value('host')} and requires no api_key",
        at=("host",),
        why="anyone who reaches the machine can use every endpoint, including those that change "
        "weights",
        fix=Fix("set an api_key, or set host to an address that only trusted clients reach"),
    )


def _has_a_network(plan: Plan) -> bool:
    """True if the server runs in a container network, where it has to listen on every address.

    For a pod, Services and policies restrict access. False for Compose with published ports.
    """
    context = plan.request.server_context
    if context is None:
        return False
    from speclaunch.checks.rules.deployment_values import (  # noqa: PLC0415  manifests
        KUBERNETES,
        in_compose,
        is_on,
    )

    if is_on(context.pod.host_network):
        return False
    if in_compose(plan):
        return not context.pod.published
    return context.group.platform in KUBERNETES


@rule("SPL802")
def plain_api_key(plan: Plan) -> Iterator[Verdict]:
    """Report an API key written in the command."""
    if plan.request.origin is RequestOrigin.RECIPE:  # it may come from the environment
        return
    for secret in written_secrets(plan):
        if secret.name not in KEYS_OF_A_COMMAND:
            continue
        yield Verdict(
            f"the file contains the value of {secret.name}",
            at=(secret.name,),
            why="the repository and the machine's process list show it",
            fix=Fix("read it from a variable that the file does not set"),
        )


_BOOTSTRAP = "disaggregation_bootstrap_port"
_PORTS = ("port", "nccl_port", "grpc_port", _BOOTSTRAP)
_HIGHEST = 65535


@rule("SPL803")
def impossible_port(plan: Plan) -> Iterator[Verdict]:
    """Report a port outside the range 1 to 65535."""
    for name in _PORTS:
        value = plan.user_value(name)
        if value is None or 0 < int(value) <= _HIGHEST:
            continue
        if name == _BOOTSTRAP and not _bootstraps(plan):
            continue
        yield Verdict(
            f"{name} is {value}; ports are 1 to {_HIGHEST}",
            at=(name,),
            why="the server cannot bind the port",
            fix=Fix(f"use a free port from 1 to {_HIGHEST}", set={name: None}),
        )


def _bootstraps(plan: Plan) -> bool:
    """True if the bootstrap server starts: for prefill, or if a server may switch to prefill.

    See 0.5.23 managers/disagg_service.py:28, 0.4.6.post5 managers/tokenizer_manager.py:389.
    """
    mode = plan.value("disaggregation_mode")
    return mode == "prefill" or (mode == "decode" and bool(plan.value("enable_pd_role_switch")))


_HUB = lazy(r"[\w-][\w.-]*/[\w.-]+")


@rule("SPL804")
def remote_code(plan: Plan) -> Iterator[Verdict]:
    """Report remote code from the hub without a fixed revision."""
    if not plan.user_value("trust_remote_code") or plan.is_set("revision"):
        return
    model, target = plan.user_value("model_path"), plan.facts.target
    if target is None or not target.config.get("auto_map") or not _HUB.fullmatch(str(model)):
        return
    yield Verdict(
        f"the server runs the code in {model} without a pinned revision",
        at=("trust_remote_code",),
        why="trust_remote_code without a revision runs the repository's current code",
        fix=Fix("set revision to a reviewed commit"),
    )


@rule("SPL805")
def slime_argument(plan: Plan) -> Iterator[Verdict]:
    """Report an argument that slime sets itself, ignoring the user's value."""
    if plan.request.origin is not RequestOrigin.SLIME:
        return
    ignored = {value.name: value for value in plan.request.ignored}
    for name, own in OWN.items():
        setting = ignored.get(name)
        if setting is None:
            continue
        option = own.option
        yield Verdict(
            f"slime ignores --sglang-{name.replace('_', '-')}",
            place=setting.place,
            why="slime itself sets this argument for its engines",
            fix=Fix(f"use {option} instead, or remove it" if option else "remove it"),
        )


_HANDS_OVER_NOTHING = "NGRAM"
"""Algorithm without a draft KV cache or hidden states to transfer: prefill need not use it."""
_ALGORITHM = "speculative_algorithm"
_CHECKED = ">=0.5.15"
"""Releases in which prefill and decode servers fail if they speculate differently. Up to 0.5.14
they run."""


@rule_of_roles("SPL806")
def different_roles(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report prefill and decode servers of one model that speculate differently."""
    theirs, ours = _algorithm(prefill), _algorithm(decode)
    if theirs != ours:
        return _difference("algorithm", ours, theirs, decode)
    if ours is None:
        return None
    for subject, name in (
        ("draft", "speculative_draft_model_path"),
        ("topk", "speculative_eagle_topk"),
    ):
        value, other_value = decode.user_value(name), prefill.user_value(name)
        if value != other_value:
            return _difference(subject, value, other_value, decode, name)
    return None


def _algorithm(plan: Plan) -> str | None:
    return None if plan.algorithm == _HANDS_OVER_NOTHING else plan.algorithm


def _difference(subject: str, ours: object, theirs: object, decode: Plan, *names: str) -> Conflict:
    fails = decode.in_versions(_CHECKED)
    return Conflict(
        f"decode and prefill of {decode.value('model_path')} differ in the speculative {subject}: "
        f"{_shown(ours)} for decode, {_shown(theirs)} for prefill",
        (*names, _ALGORITHM, "disaggregation_mode"),
        "decode continues from the draft's KV cache and the hidden states that prefill transfers, "
        "in buffers sized by the speculation settings; a differing pair "
        + ("fails or hangs" if fails else "loses accuracy without a message")
        + " (sglang issue #32527)",
        Fix("set the same speculative arguments in both roles"),
    )


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


@rule("SPL807")
def slime_data_parallel(plan: Plan) -> Iterator[Verdict]:
    """Report data parallelism without DP attention, which slime refuses."""
    if plan.request.origin is not RequestOrigin.SLIME:
        return
    ranks = plan.user_value("dp_size")
    if ranks is None or int(ranks) <= 1 or plan.user_value("enable_dp_attention"):
        return
    yield Verdict(
        f"slime accepts --sglang-dp-size {ranks} only with --sglang-enable-dp-attention",
        at=("dp_size",),
        why="slime stops before it starts anything, with an empty AssertionError",
        fix=Fix("add --sglang-enable-dp-attention, or run more engines"),
    )


@rule("SPL808")
def port_clash(plan: Plan) -> Iterator[Verdict]:
    """Report two listeners of one server on the same port."""
    http = plan.value("port")
    others = {name: plan.user_value(name) for name in ("nccl_port", "grpc_port")}
    address = str(plan.user_value("dist_init_addr")).rpartition(":")[2]
    others["dist_init_addr"] = int(address) if address.isdecimal() else None
    for name, port in others.items():
        if port is None or port != http:
            continue
        refused = name == "grpc_port"
        yield Verdict(
            f"{name} and the HTTP server share port {port}",
            at=(name, "port"),
            why="the engine refuses: --grpc-port must differ from --port"
            if refused
            else "the second listener fails: address already in use",
            fix=Fix(f"set {name} to another port"),
            severity=Severity.ERROR if refused else None,
        )
