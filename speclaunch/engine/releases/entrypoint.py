"""Args that a version's programs process before the server's own parser.

`sglang serve` has its own options, and accepts the model as its first arg. The keys of a `--config`
file become args that precede all others. Source: the released wheels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from speclaunch.engine.releases.argument import Argument, ArgumentKind
from speclaunch.engine.releases.catalogue import Catalogue
from speclaunch.engine.releases.versions import within

SERVE_SINCE = "0.5.5"
"""The first release with the program `sglang` (entry_points.txt; 0.5.4.post3 does not have it)."""
_MODEL_TYPE_SINCE = "0.5.10"
"""The first release with `--model-type` (cli/serve.py:16 `_extract_model_type_override`; 0.5.9
passes every arg to the parser)."""
_BACKENDS_SINCE = "0.5.20"
"""The first release with cli/serve_backends.py, through which a package can add --model-type
values."""
_POSITIONAL_SINCE = "0.5.16"
"""The first release that accepts the model as a positional arg (cli/serve.py:49
`_normalize_positional_model_path`; not in 0.5.15.post1)."""
_MODEL_ALIAS_SINCE = "0.5.11"
"""The first release whose `sglang serve` also recognizes `--model` (cli/utils.py:106 `arg in
("--model-path", "--model")`; 0.5.10.post1 accepts only --model-path)."""
_MODEL_TYPES = ("auto", "llm", "diffusion")
CONFIG = "--config"
CONFIG_SINCE = "0.5.3"
"""The first release with `--config` (server_args.py:3159 `if "--config" in argv`)."""
CONFIG_SUFFIXES = (".yaml", ".yml")
"""Suffixes that a config file may have (`_validate_yaml_file` of server_args_config_parser.py, in
all versions)."""
_PARSER_SINCE = "0.5.8"
"""The first release whose config parser recognizes switches. In earlier releases `boolean_actions`
is always empty, because no argparse action has an attribute `action` (server_args.py:4986 of
0.5.7). For every argument, true renders the flag alone and false renders nothing."""
_JSON_SINCE = "0.5.14"
"""The first release that converts a mapping in the config to JSON (server_args_config_parser.py:155
`json.dumps`; 0.5.13.post1 writes Python's `str`)."""
_FLAGS_SINCE = "0.5.23"
"""The first release in which a config key may be any flag (server_args_config_parser.py:18
`_config_keys`). In earlier releases it must be a `dest`."""


def since(catalogue: Catalogue, version: str) -> bool:
    """True if a catalogue's version is `version` or later."""
    return within(catalogue.version, f">={version}")


class Dispatch(Struct, frozen=True):
    """The roles that `sglang serve` assigns to its args, as indexes.

    `own`: options of `sglang serve` itself, with their values. `model`: the arg used as the model
    path. `refused`: the errors that prevent a start, each with its arg's index (None: no single
    arg).
    """

    own: frozenset[int] = frozenset()
    model: int | None = None
    refused: tuple[tuple[int | None, str], ...] = ()
    diffusion: bool = False
    """True for a diffusion server, which has different arguments."""


def dispatch(args: Sequence[str], catalogue: Catalogue, *, certain: bool = True) -> Dispatch:
    """Return the roles of the args of a version's `sglang serve`.

    `certain` is False if some args are unknown and one of them may be the model.
    """
    if not since(catalogue, SERVE_SINCE):
        message = f"`sglang serve` exists from SGLang {SERVE_SINCE} on; use launch_server"
        return Dispatch(refused=((None, message),))
    own: set[int] = set()
    refused: list[tuple[int | None, str]] = []
    kind = "auto"
    if since(catalogue, _MODEL_TYPE_SINCE):
        index = 0
        while index < len(args):
            if args[index] == "--model-type":
                own |= {index, index + 1}
                kind = args[index + 1] if index + 1 < len(args) else ""
                index += 1
            elif args[index].startswith("--model-type="):
                own.add(index)
                kind = args[index].partition("=")[2]
            index += 1
    if not kind or (kind not in _MODEL_TYPES and not since(catalogue, _BACKENDS_SINCE)):
        at = max(own)
        refused.append((min(at, len(args) - 1), f"argument --model-type: invalid choice {kind!r}"))
    rest = [index for index in range(len(args)) if index not in own]
    model = rest[0] if rest and not args[rest[0]].startswith("-") else None
    if not since(catalogue, _POSITIONAL_SINCE):
        model = None
    names = ["--model-path"]
    if since(catalogue, _MODEL_ALIAS_SINCE):
        names.append("--model")
    found = model is not None or any(
        (args[index] in names and index != rest[-1])
        or args[index].startswith(tuple(f"{name}=" for name in names))
        for index in rest
    )
    if certain and not found:
        looks = " or ".join(names)
        message = f"the following arguments are required: {looks}, in full, on the command line"
        refused.append((None, message))
    return Dispatch(frozenset(own), model, tuple(refused), kind == "diffusion")


def config_is_switch(key: str, catalogue: Catalogue) -> bool:
    """True if a `--config` key becomes the flag alone for true, and nothing for false."""
    if not since(catalogue, _PARSER_SINCE):
        return True
    return any(argument.kind is ArgumentKind.FLAG for argument in _meant(key, catalogue))


def config_refuses(key: str, catalogue: Catalogue) -> bool:
    """True if a version raises "Unsupported config option" for a key.

    Up to 0.5.22, any argument with that destination and an unsupported action suffices, including a
    deprecated alias. From 0.5.23, every matching argument must have such an action
    (server_args_config_parser.py).
    """
    if not since(catalogue, _PARSER_SINCE):
        return False
    meant = [a for a in _meant(key, catalogue) if a.kind is not ArgumentKind.HELP]
    supported = [_supported(argument, catalogue) for argument in meant]
    every = any if since(catalogue, _FLAGS_SINCE) else all
    return bool(meant) and not every(supported)


def config_mapping(value: dict[Any, Any], catalogue: Catalogue) -> str:
    """Return the arg that a mapping in a `--config` file becomes."""
    return json.dumps(value) if since(catalogue, _JSON_SINCE) else str(value)


def _meant(key: str, catalogue: Catalogue) -> list[Argument]:
    """Return the arguments that the engine matches to a `--config` key."""
    name = key.replace("-", "_")
    by_flag = since(catalogue, _FLAGS_SINCE)
    return [
        argument
        for argument in catalogue.arguments.values()
        if name == argument.dest
        or (by_flag and name in {flag[2:].replace("-", "_") for flag in argument.flags})
    ]


_PLAIN = frozenset(
    {
        "disable_fast_image_processor",
        "elastic_ep_rejoin",
        "enable_flashinfer_allreduce_fusion",
        "enable_nan_detection",
        "grpc_mode",
        "keep_mm_feature_on_device",
    }
)
"""Deprecated flags that still use store_true; only their help text mentions the deprecation. Other
deprecated flags use DeprecatedStoreTrueAction or DeprecatedAliasStoreAction (0.5.10 server_args.py
to 0.5.23 arg_groups/argparse_actions.py)."""


def _supported(argument: Argument, catalogue: Catalogue) -> bool:
    """True if `--config` supports the argument's action: store, store_true or, from 0.5.23, any
    action with a single value."""
    kind = argument.kind
    if argument.deprecated and argument.replacement and argument.dest not in _PLAIN:
        return kind is not ArgumentKind.FLAG and since(catalogue, _FLAGS_SINCE)
    if kind in (ArgumentKind.FLAG, ArgumentKind.OPTIONAL_VALUE):
        return True
    if kind is ArgumentKind.VALUE:
        return argument.const is None or since(catalogue, _FLAGS_SINCE)
    if kind is ArgumentKind.LIST and argument.dest != "lora_paths":  # LoRAPathAction
        return argument.nargs is not None or since(catalogue, _FLAGS_SINCE)
    return False
