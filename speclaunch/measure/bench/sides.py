"""The two sides of a comparison: their deployments and their expected behavior."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Lookup
from speclaunch.core import COMMAND_LINE, InputError, Place, size
from speclaunch.deployments import (
    Prepared,
    Recipe,
    load,
    override_key,
    prepare,
    shown_overrides,
    split_recipe,
    with_overrides,
)
from speclaunch.engine import Plan, UnknownValueError, canonical, context_length, resolve
from speclaunch.measure.bench.engines import (
    SIMULATED,
    EngineOrder,
    RunningSide,
    key_of_server,
    running_side,
    server_url,
    simulated_in,
    unasked_side,
)
from speclaunch.measure.bench.measurement import ExpectedSide
from speclaunch.measure.bench.workload import Prompts
from speclaunch.serving import (
    command,
    document,
    engine_environment,
    ensure_cpu_models,
    local_lookup,
)

NONE: Final = "none"
"""Baseline name: the same deployment without speculation."""
URL = "url"
_PORT = "args.port"
UNATTENDED = ("launch.watchdog.enabled=false", "launch.restart.policy=never")
"""Overrides for a measured engine.

The watchdog would treat a paused engine as hung. A restart after a crash would measure another
engine.
"""


def without_speculation(recipe: Recipe) -> list[str]:
    """Return the overrides that turn a recipe's speculation off; empty if it does not speculate."""
    names = recipe.deployment.args
    return [f"args.{name}=null" for name in names if canonical(name).startswith("speculative_")]


def identity_of(prepared: Prepared) -> list[str]:
    """Return everything that affects a measurement: command and environment, secrets redacted."""
    overlay = document(prepared)["env"]
    simulated = {name: os.environ.get(name) for name in SIMULATED}
    env = {**{n: v for n, v in simulated.items() if v}, **overlay}
    return [*command(prepared), json.dumps(env, sort_keys=True)]


class LaunchedSide(Struct, frozen=True):
    """A deployment that a comparison launches."""

    name: str
    words: tuple[str, ...]
    """Arguments of `speclaunch launch`."""
    prepared: Prepared
    plan: Plan
    lookup: Lookup
    """Lookup for the recipe's hardware."""
    expected: ExpectedSide

    def order(self, port: int) -> EngineOrder:
        key = self.prepared.address.api_key
        words = with_overrides(self.words, (f"{_PORT}={port}", *UNATTENDED))
        return EngineOrder(self.name, words, port, key=key or "")

    @property
    def replaced(self) -> tuple[str, ...]:
        """User overrides that are ignored because the measurement sets their keys."""
        own = {_PORT, *map(override_key, UNATTENDED)}
        return tuple(word for word in self.words if override_key(word) in own)

    @property
    def identity(self) -> list[str]:
        return identity_of(self.prepared)

    @property
    def file_name(self) -> str:
        """The side's name in a comparison's folder name."""
        return self.prepared.recipe.deployment.name

    @property
    def model(self) -> str:
        return self.prepared.model

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the load generator: that of the engine, plus its API key.

        SGLang's generator reads the key from OPENAI_API_KEY (benchmark/serving.py
        `get_auth_headers`).
        """
        key = self.prepared.address.api_key
        return {**engine_environment(self.prepared), **({"OPENAI_API_KEY": key} if key else {})}

    @property
    def tokenizer(self) -> str | None:
        args = self.prepared.recipe.deployment.args
        found = args.get("tokenizer_path") or args.get("model_path")
        return str(found) if found else None


class SideOptions(Struct, frozen=True):
    """Command-line options common to all sides."""

    config_dirs: tuple[Path, ...]
    engine: str | None
    lookup: Lookup
    dry_run: bool = False
    """True: nothing is started, and no engine is needed."""


AnySide = LaunchedSide | RunningSide


def candidate(words: Sequence[str], options: SideOptions) -> LaunchedSide:
    """Return the candidate for launch arguments. Raises InputError."""
    return _side(list(words), options)


def server(url: str, options: SideOptions, *, is_baseline: bool = False) -> RunningSide:
    """Return the side of a running server. Raises InputError, LaunchError."""
    option = f"--against {URL}={url}" if is_baseline else f"--url {url}"
    address = server_url(url, option)
    if options.dry_run:
        return unasked_side(address)
    return running_side(address, key_of_server(is_baseline=is_baseline))


def require_baseline(against: str, *, is_server: bool = False) -> None:
    """Raise InputError unless `--against` has a valid form.

    `is_server`: the candidate is a running server, which has no recipe.
    """
    key, _, value = against.partition("=")
    place = Place(COMMAND_LINE, text=f"--against {against}")
    if against != NONE and not (key in ("engine", "recipe", URL) and value):
        help_ = "use none, recipe=NAME, engine=VERSION, or url=URL"
        raise InputError(f"unknown baseline {against!r}", place, help_)
    if is_server and key not in ("recipe", URL):
        raise InputError(
            "a running server cannot be restarted with other settings",
            place,
            "start a second server and compare with it: --against url=URL",
        )


@overload
def baseline(
    against: Literal["none"], words: Sequence[str], candidate: LaunchedSide, options: SideOptions
) -> LaunchedSide: ...
@overload
def baseline(
    against: str, words: Sequence[str], candidate: AnySide, options: SideOptions
) -> AnySide: ...
def baseline(
    against: str, words: Sequence[str], candidate: AnySide, options: SideOptions
) -> AnySide:
    """Return the baseline that `--against` selects for a candidate. Raises InputError."""
    require_baseline(against, is_server=isinstance(candidate, RunningSide))
    if isinstance(candidate, LaunchedSide) and against == NONE:
        return _plain(words, candidate, options)
    key, _, value = against.partition("=")
    if key == URL:
        return _with_distinct_name(server(value, options, is_baseline=True), candidate, against)
    if key == "engine":
        return _with_distinct_name(
            _side(list(words), replace(options, engine=value)), candidate, against
        )
    return _with_distinct_name(_side(against.split(), options), candidate, against)


def _plain(words: Sequence[str], candidate: LaunchedSide, options: SideOptions) -> LaunchedSide:
    """Return the candidate without speculation. Raises InputError if it does not speculate."""
    if not candidate.expected.speculates:
        raise InputError(
            f"{candidate.prepared.recipe.deployment.name} does not speculate",
            Place(COMMAND_LINE, text=f"--against {NONE}"),
            "compare it with another recipe: --against recipe=NAME",
        )
    off = without_speculation(candidate.prepared.recipe)
    side = _side(list(with_overrides(words, off)), options)
    return _named(side, f"{side.prepared.recipe.deployment.name} without speculation")


T = TypeVar("T", LaunchedSide, RunningSide)


def _with_distinct_name(side: T, candidate: AnySide, against: str) -> T:
    """Return the side, renamed with `against` if its name equals the candidate's.

    The new name has no secrets, because files store it.
    """
    if side.name != candidate.name:
        return side
    return _named(side, f"{side.name} ({' '.join(shown_overrides(against.split()))})")


def _named(side: T, name: str) -> T:
    return replace(side, name=name, expected=replace(side.expected, name=name))


def _side(words: list[str], options: SideOptions) -> LaunchedSide:
    name, overrides = split_recipe(words)
    recipe = load(name, overrides, options.config_dirs)
    if len(recipe.roles) > 1:
        roles = ", ".join(role.deployment.name for role in recipe.roles)
        raise InputError(
            f"{name} has several roles ({roles}); bench measures a single server",
            help="start all roles and their router, and measure the router with "
            "python3 -m sglang.bench_serving",
        )
    prepared = prepare(recipe, options.engine, dry_run=options.dry_run)
    if not options.dry_run:
        ensure_cpu_models(prepared)  # the identity of a measurement depends on their facts
    request = prepared.request(os.environ)
    if prepared.address.tls:
        raise InputError(
            f"{name} serves TLS, which the load generator does not support",
            help="measure it without TLS: args.ssl_certfile=null args.ssl_keyfile=null",
        )
    lookup = local_lookup(
        options.lookup, recipe, probe=not options.dry_run, cpu=prepared.cpu is not None
    )
    plan = resolve(request, lookup.facts(request))
    flags = [f"--config-dir={path}" for path in options.config_dirs]
    flags += [f"--engine={options.engine}"] if options.engine else []
    flags += [f"--models={path}" for path in options.lookup.model_dirs]
    env = {**os.environ, **prepared.overlay}
    label = recipe.deployment.name
    speculates = plan.value_or_none("speculative_algorithm") is not None
    expected = ExpectedSide(
        label,
        speculates,
        plan.value_or_none("speculative_num_draft_tokens"),
        simulated_in(env) if speculates else None,
    )
    launched = (f"recipe={name}", *overrides, *flags)
    return LaunchedSide(label, launched, prepared, plan, lookup, expected)


def longest(side: AnySide, answer: int) -> int | None:
    """Return the maximum prompt tokens that leave room for `answer` tokens; None if unknown."""
    if isinstance(side, RunningSide):
        context = size(side.info.get("context_length"))
        return size(side.info.get("max_req_input_len")) if context is None else context - answer
    try:
        return context_length(side.plan) - answer
    except UnknownValueError:
        return None


def with_room(prompts: Prompts, sides: Sequence[AnySide]) -> Prompts:
    """Return the prompts, limited to the length that every side accepts.

    The engine rejects a longer prompt (0.5.23 managers/tokenizer_manager.py
    `_validate_one_request`). Raises InputError if the requested prompt or answer length does not
    fit.
    """
    answer = prompts.output_tokens
    requested = prompts.context or prompts.input_tokens
    known = [(most, side) for side in sides if (most := longest(side, answer)) is not None]
    if not known:
        return prompts
    most, side = min(known, key=lambda entry: entry[0])
    if most > 0 and requested <= most:
        return replace(prompts, longest=most + answer)
    option = f"--output-tokens {answer}"
    if requested and most > 0:
        option = f"--context {requested}" if prompts.context else f"--input-tokens {requested}"
    prompt = f"prompts of {requested} tokens and " if requested else ""
    message = f"{side.name} cannot fit {prompt}answers of {answer} tokens"
    help_ = f"request at most {most} tokens" if most > 0 else "lower --output-tokens"
    raise InputError(message, Place(COMMAND_LINE, text=option), help_)
