"""Server arguments that name local paths, and which of those paths do not exist.

A value is a path if it begins like one: `/`, `./`, `../`, `~`. Other values may be a hub name
(`org/model`), a built-in (`chat_template: llama-2`), JSON, or a URL. The engine opens a path
unchanged: relative to its start directory, and without expanding `~`. This holds in every release
since 0.4.6 (0.5.23 `utils/hf_transformers/common.py:342`, `parser/template_manager.py:243`,
`arg_groups/serving_hook.py:68`, `speculative/spec_utils.py:793`). Only paths that the engine reads
are checked, because it creates the directories that it writes to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from speclaunch.engine.releases.catalogue import Catalogue
from speclaunch.engine.releases.command import RenderedArgs, RenderedArgument, unset_in

Algorithm = str | None
Condition = Callable[[Algorithm], bool]


def _always(_: Algorithm) -> bool:
    return True


def _drafts(algorithm: Algorithm) -> bool:
    """True if the algorithm loads a draft model, unlike NGRAM."""
    return algorithm not in (None, "NGRAM")


_READ: dict[str, Condition] = {
    # checkpoints
    "model_path": _always,
    "tokenizer_path": _always,
    "lora_paths": _always,
    "speculative_draft_model_path": _drafts,
    "uno_lora_path": _drafts,
    "kt_weight_path": _always,
    "kt_amx_weight_path": _always,
    "modelopt_checkpoint_restore_path": _always,
    # files
    "config": _always,
    "chat_template": _always,
    "completion_template": _always,
    "ssl_keyfile": _always,
    "ssl_certfile": _always,
    "ssl_ca_certs": _always,
    "decrypted_config_file": _always,
    "decrypted_draft_config_file": _drafts,
    "quantization_param_path": _always,
    "dllm_algorithm_config": _always,
    "flexkv_config_file": _always,
    "lmcache_config_file": _always,
    # JSON in the command line, or a file with JSON
    "deepep_config": _always,
    "init_expert_location": _always,
    "hicache_storage_backend_extra_config": _always,
    # EAGLE-3 has its own map and ignores the argument (0.5.23 eagle_worker_v2.py)
    "speculative_token_map": lambda algorithm: algorithm in ("EAGLE", "NEXTN"),
    "speculative_adaptive_config": _drafts,
    "speculative_ngram_external_corpus_path": lambda algorithm: algorithm == "NGRAM",
    "speculative_dspark_confidence_sts_path": lambda algorithm: algorithm == "DSPARK",
    "speculative_dspark_sps_table_path": lambda algorithm: algorithm == "DSPARK",
}
_BEGINNINGS = ("/", "./", "../", "~")


def is_local(value: str) -> bool:
    """True if a value can only be a local path, not a name."""
    return value.startswith(_BEGINNINGS) or value in (".", "..")


def local_paths(
    rendered: RenderedArgs, catalogue: Catalogue
) -> Iterator[tuple[RenderedArgument, str]]:
    """Yield each argument with a local path that `catalogue`'s engine reads, and the path."""
    value = rendered.value("speculative_algorithm")
    algorithm = value.upper() if value is not None else None
    for argument in rendered.arguments:
        known = catalogue.by_name(argument.name)
        read = _READ.get(argument.name)
        if read is None or known is None or not known.read or not read(algorithm):
            continue
        for path in _paths(argument.name, argument.values):
            if is_local(path):
                yield argument, path


def _paths(name: str, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        if unset_in(value):  # comes from a variable that is unset here
            continue
        if name == "lora_paths":
            yield _adapter(value)
        elif not value.startswith("{"):
            yield value.removeprefix("@") if name.endswith("_extra_config") else value


def _adapter(value: str) -> str:
    """Return the path in `PATH`, `NAME=PATH`, or an object with `lora_path` (see `lora_paths`)."""
    if value.startswith("{"):
        try:
            return str(json.loads(value).get("lora_path", ""))
        except (ValueError, RecursionError):
            return ""
    name, equals, path = value.partition("=")
    return path if equals and not is_local(name) else value


class MissingPath(Struct, frozen=True):
    """A path passed to the engine, and the reason why it is missing."""

    name: str
    """The engine's name for the argument."""
    recipe_name: str
    """The recipe's name for the argument."""
    path: str
    why: str
    help: str

    @property
    def message(self) -> str:
        return f"{self.recipe_name}: {self.path} {self.why}"


def missing_paths(
    rendered: RenderedArgs, catalogue: Catalogue, *, made: Iterable[Path] = ()
) -> tuple[MissingPath, ...]:
    """Return the missing paths. Relative paths are resolved from the current directory.

    `made`: directories in which speclaunch creates the paths itself.
    """
    own = {str(directory) for directory in made}
    return tuple(
        _missing(argument.name, argument.recipe_name or argument.name, path)
        for argument, path in local_paths(rendered, catalogue)
        if not os.path.exists(path) and str(Path(path).parent) not in own  # noqa: PTH110 - like the engine
    )


def _missing(name: str, recipe_name: str, path: str) -> MissingPath:
    if path.startswith("~"):
        meant = os.path.expanduser(path)  # noqa: PTH111 - Path's own raises if there is no home
        return MissingPath(
            name,
            recipe_name,
            path,
            "does not exist: the engine does not expand ~",
            f"write {meant}",
        )
    try:
        os.stat(path)  # noqa: PTH116
    except PermissionError:
        return MissingPath(
            name,
            recipe_name,
            path,
            "cannot be read by this user",
            "let this user read it: the engine runs as this user",
        )
    except (OSError, ValueError):
        pass
    nearest = next(
        (str(parent) for parent in Path(path).absolute().parents if parent.exists()), "/"
    )
    where = "" if nearest == "/" else f"; {nearest} exists"
    return MissingPath(
        name, recipe_name, path, "does not exist on this machine", f"correct the path{where}"
    )
