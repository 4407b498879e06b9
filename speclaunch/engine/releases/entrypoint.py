"""What a version's programs do with their words before the server's own parser sees them.

`sglang serve` has options of its own, and takes the model as its first word; the file behind
`--config` becomes words in front of all others. Read from the released wheels.
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
"""The first release with the program `sglang` (entry_points.txt; 0.5.4.post3 has none)."""
_MODEL_TYPE_SINCE = "0.5.10"
"""cli/serve.py:16 `_extract_model_type_override`; 0.5.9 hands every word to the parser."""
_BACKENDS_SINCE = "0.5.20"
"""From cli/serve_backends.py on, a package can add more names for --model-type."""
_POSITIONAL_SINCE = "0.5.16"
"""cli/serve.py:49 `_normalize_positional_model_path`; not in 0.5.15.post1."""
_MODEL_ALIAS_SINCE = "0.5.11"
"""cli/utils.py:106 `arg in ("--model-path", "--model")`; 0.5.10.post1 looks for --model-path."""
_MODEL_TYPES = ("auto", "llm", "diffusion")
CONFIG = "--config"
CONFIG_SINCE = "0.5.3"
"""server_args.py:3159 `if "--config" in argv`; 0.5.2 has no such argument."""
CONFIG_SUFFIXES = (".yaml", ".yml")
"""server_args_config_parser.py `_validate_yaml_file`, all versions."""
_PARSER_SINCE = "0.5.8"
"""Before, `boolean_actions` is always empty: no argparse action has an attribute `action`
(server_args.py:4986 of 0.5.7), so that true is a flag and false nothing whatever the argument."""
_JSON_SINCE = "0.5.14"
"""server_args_config_parser.py:155 `json.dumps`; 0.5.13.post1 writes a mapping as Python does."""
_SPELLINGS_SINCE = "0.5.23"
"""server_args_config_parser.py:18 `_config_keys`: before, a key counts by its `dest` alone."""


def since(catalogue: Catalogue, version: str) -> bool:
    """Whether a catalogue is of `version` or a later one."""
    return within(catalogue.version, f">={version}")


class Dispatch(Struct, frozen=True):
    """How `sglang serve` reads its words: indexes into them.

    `own` are its own options with their values, `model` the word that it takes for the model path.
    `refused` is what it says instead of starting anything, with the word that it is about.
    """

    own: frozenset[int] = frozenset()
    model: int | None = None
    refused: tuple[tuple[int | None, str], ...] = ()
    diffusion: bool = False
    """The server is told to be another one, with arguments of its own."""


def dispatch(words: Sequence[str], catalogue: Catalogue, *, certain: bool = True) -> Dispatch:
    """What `sglang serve` of a version makes of its words.

    Not `certain`: some words are not known, so that the model may be among them.
    """
    if not since(catalogue, SERVE_SINCE):
        said = f"`sglang serve` exists from SGLang {SERVE_SINCE} on; use launch_server"
        return Dispatch(refused=((None, said),))
    own: set[int] = set()
    refused: list[tuple[int | None, str]] = []
    kind = "auto"
    if since(catalogue, _MODEL_TYPE_SINCE):
        index = 0
        while index < len(words):
            if words[index] == "--model-type":
                own |= {index, index + 1}
                kind = words[index + 1] if index + 1 < len(words) else ""
                index += 1
            elif words[index].startswith("--model-type="):
                own.add(index)
                kind = words[index].partition("=")[2]
            index += 1
    if not kind or (kind not in _MODEL_TYPES and not since(catalogue, _BACKENDS_SINCE)):
        at = max(own)
        refused.append((min(at, len(words) - 1), f"argument --model-type: invalid choice {kind!r}"))
    rest = [index for index in range(len(words)) if index not in own]
    model = rest[0] if rest and not words[rest[0]].startswith("-") else None
    if not since(catalogue, _POSITIONAL_SINCE):
        model = None
    names = ["--model-path"]
    if since(catalogue, _MODEL_ALIAS_SINCE):
        names.append("--model")
    found = model is not None or any(
        (words[index] in names and index != rest[-1])
        or words[index].startswith(tuple(f"{name}=" for name in names))
        for index in rest
    )
    if certain and not found:
        looks = " or ".join(names)
        said = (
            f"the following arguments are required: {looks}, in this spelling, on the command line"
        )
        refused.append((None, said))
    return Dispatch(frozenset(own), model, tuple(refused), kind == "diffusion")


def config_is_switch(key: str, catalogue: Catalogue) -> bool:
    """Whether true for a key of a `--config` file is its flag alone, and false nothing."""
    if not since(catalogue, _PARSER_SINCE):
        return True
    return any(argument.kind is ArgumentKind.FLAG for argument in _meant(key, catalogue))


def config_refuses(key: str, catalogue: Catalogue) -> bool:
    """Whether a version raises "Unsupported config option" for a key.

    Up to 0.5.22 it does where any argument of that destination has another action, a deprecated
    alias among them; from 0.5.23 where all have (server_args_config_parser.py).
    """
    if not since(catalogue, _PARSER_SINCE):
        return False
    meant = [a for a in _meant(key, catalogue) if a.kind is not ArgumentKind.HELP]
    supported = [_supported(argument, catalogue) for argument in meant]
    every = any if since(catalogue, _SPELLINGS_SINCE) else all
    return bool(meant) and not every(supported)


def config_mapping(value: dict[Any, Any], catalogue: Catalogue) -> str:
    """The word that a mapping becomes."""
    return json.dumps(value) if since(catalogue, _JSON_SINCE) else str(value)


def _meant(key: str, catalogue: Catalogue) -> list[Argument]:
    """The arguments that a key stands for in the engine's reading of the file."""
    name = key.replace("-", "_")
    by_spelling = since(catalogue, _SPELLINGS_SINCE)
    return [
        argument
        for argument in catalogue.arguments.values()
        if name == argument.dest
        or (by_spelling and name in {flag[2:].replace("-", "_") for flag in argument.flags})
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
"""Deprecated in their help alone: still store_true. Other deprecated flags have an action of their
own, DeprecatedStoreTrueAction or DeprecatedAliasStoreAction (0.5.10 server_args.py to 0.5.23
arg_groups/argparse_actions.py)."""


def _supported(argument: Argument, catalogue: Catalogue) -> bool:
    """A store action or store_true; from 0.5.23 whatever takes one value, too."""
    kind = argument.kind
    if argument.deprecated and argument.replacement and argument.dest not in _PLAIN:
        return kind is not ArgumentKind.FLAG and since(catalogue, _SPELLINGS_SINCE)
    if kind in (ArgumentKind.FLAG, ArgumentKind.OPTIONAL_VALUE):
        return True
    if kind is ArgumentKind.VALUE:
        return argument.const is None or since(catalogue, _SPELLINGS_SINCE)
    if kind is ArgumentKind.LIST and argument.dest != "lora_paths":  # LoRAPathAction
        return argument.nargs is not None or since(catalogue, _SPELLINGS_SINCE)
    return False
