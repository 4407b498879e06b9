"""Questions to a release's own validation, their answers, and the query command for a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Place, expand_user, is_secret_variable, reads
from speclaunch.engine import (
    ENGINE_VARIABLES,
    Checkpoint,
    PartialConfig,
    Plan,
    Request,
    RequestOrigin,
    UnknownValueError,
    canonical,
    declare,
    gpus_needed,
    is_secret_argument,
    parse_argv,
)


class EngineQuestion(Struct, frozen=True):
    """Command to validate, exactly as it would be started."""

    words: tuple[str, ...]
    """Server arguments as argv tokens; model paths as written."""
    env: tuple[tuple[str, str], ...]
    machine: str
    """Declared hardware to emulate, such as `h200:8` or `cpu`."""
    folder: Path | None
    """Root of relative paths; None: an empty folder."""
    configs: tuple[tuple[str, str], ...] = ()
    """Model id as written, and config.json text, of each model that is not a local directory."""


class EngineAnswer(Struct, frozen=True):
    """Verdict of the release on one command."""

    accepted: bool | None
    """False if refused; None if there is no verdict, for the reason in `why` (such as a crash)."""
    release: str
    why: str
    """The engine's message (the last exception's text or the parser's error), or the reason for no
    verdict."""
    kind: str
    """Class name of the exception; `SystemExit` for a parser error."""
    place: str
    """Source line of the refusal, relative to the sglang package: `srt/server_args.py:1234`. For a
    parser error, the argument: `--tp-size`."""
    resolved: Mapping[str, Any] = {}
    """Resolved values, by SGLang's names; empty after a refusal."""
    line: str = ""
    """Text of the refusing source line, if readable."""


ANY_MACHINE = ("h200:8", "b200:8")
"""Machines to emulate if the hardware is unknown. A refusal must occur on both."""
STAND_INS = {
    "host": "127.0.0.1",
    "port": "30000",
    "nccl_port": "30100",
    "dist_init_addr": "127.0.0.1:20000",
    "node_rank": "0",
    "served_model_name": "model",
    "log_level": "info",
    "log_level_http": "info",
    "random_seed": "1",
    "api_key": "key",
    "admin_api_key": "key",
    "ssl_keyfile_password": "key",
}
"""Substitutes for values that are secret, or unknown and irrelevant to validation."""
_FROM_CODE = ("SGLANG_EXTERNAL_", "SGLANG_PLUGIN")
"""Prefixes of variables that name code to import."""
_CHECKPOINT_FILES = ("config.json", "hf_quant_config.json", "generation_config.json")
"""Files of a checkpoint that validation reads."""


class NotQueriedError(Exception):
    """The engine cannot be queried about a deployment; the message is the reason."""


class Unit(Struct, frozen=True):
    """Removable part of a command: an argument with its values, or a variable."""

    name: str
    """The argument's newest name in the engine, or the variable's name."""
    written: str
    place: Place
    words: tuple[int, ...] = ()
    """Positions among the tokens; empty for a variable."""


class QueryCommand(Struct, frozen=True):
    """Deployment as an engine command. `units`: all removable parts; the model is not removable."""

    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    units: tuple[Unit, ...]
    machines: tuple[str, ...]
    """Hardware to emulate; `ANY_MACHINE` if it is unknown."""
    folder: Path
    configs: tuple[tuple[str, str], ...]
    seen: tuple[str, ...] = ()
    """Local paths and file contents that the engine reads; part of the verdict's cache key."""
    doubts: tuple[str, ...] = ()
    """Reasons why the real config.json of a model may differ from the one used."""

    def question(self, machine: str, left_out: frozenset[int] = frozenset()) -> EngineQuestion:
        """Return the question for a machine, without the units numbered in `left_out`."""
        gone = {index for number in left_out for index in self.units[number].words}
        names = {self.units[number].name for number in left_out if not self.units[number].words}
        return EngineQuestion(
            tuple(word for index, word in enumerate(self.words) if index not in gone),
            tuple(pair for pair in self.env if pair[0] not in names),
            machine,
            self.folder,
            self.configs,
        )


def query_command(plan: Plan) -> QueryCommand:
    """Return the command for querying a plan's engine. Raises NotQueriedError."""
    request = plan.request
    if request.origin is RequestOrigin.SLIME:
        raise NotQueriedError("slime adds arguments that are not in the command")
    if request.unseen is not None:
        raise NotQueriedError(request.unseen)
    configs = _configs(plan)
    words, units = _words(request)
    env: list[tuple[str, str]] = []
    for name, variable in request.env.items():
        if not name.startswith(ENGINE_VARIABLES) or is_secret_variable(name):
            continue  # validation reads no other variables
        if not variable.known:
            raise NotQueriedError(f"the value of {name} is unknown: {variable.value}")
        if name.startswith(_FROM_CODE):
            raise NotQueriedError(f"{name} loads code, which an engine check never runs")
        env.append((name, str(variable.value)))
        units.append(Unit(name, name, variable.place))
    return QueryCommand(
        words,
        tuple(env),
        tuple(units),
        _machines(plan),
        Path.cwd(),
        configs,
        tuple(_on_disk(plan)),
        tuple(_doubts(plan)),
    )


def _words(request: Request) -> tuple[tuple[str, ...], list[Unit]]:
    """Return the tokens, with secrets and irrelevant values replaced, and their removable parts."""
    words = [token.text for token in request.argv]
    opaque = {index for index, token in enumerate(request.argv) if not token.known}
    parsed = parse_argv(words, request.catalogue, opaque=opaque, with_values=False)
    units: list[Unit] = []
    taken: set[int] = set()
    for item in parsed.parsed:
        at = (item.index, *item.value_indices)
        taken.update(at)
        name = canonical(item.dest)
        if opaque.intersection(at) or is_secret_argument(name):
            if name not in STAND_INS:
                raise NotQueriedError(f"the value of {item.written} is unknown")
            for index in item.value_indices:
                words[index] = STAND_INS[name]
            if not item.value_indices:
                words[item.index] = f"{item.written.partition('=')[0]}={STAND_INS[name]}"
        if name != "model_path":
            units.append(Unit(name, item.written, request.argv[item.index].place, at))
    units += _refused(request, taken)
    units.sort(key=lambda unit: unit.words)
    return tuple(words), units


def _refused(request: Request, taken: set[int]) -> list[Unit]:
    """Return units for the tokens that speclaunch's parser rejects: each flag with its values."""
    units: list[Unit] = []
    for index, token in enumerate(request.argv):
        if index in taken:
            continue
        if not token.known:
            raise NotQueriedError(f"`{token.text}` is unknown")
        last = units[-1] if units else None
        if last is not None and last.words[-1] == index - 1 and not token.text.startswith("-"):
            units[-1] = replace(last, words=(*last.words, index))
        else:
            flag = token.text.partition("=")[0]
            name = flag.lstrip("-").replace("-", "_")
            units.append(Unit(name, flag, token.place, (index,)))
    return units


def _configs(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return the name and config.json text of each model that is not a local directory."""
    found: list[tuple[str, str]] = []
    for argument, checkpoint in (
        ("model_path", plan.facts.target),
        ("speculative_draft_model_path", plan.facts.draft),
    ):
        model = plan.request.values.get(argument)
        if model is None and argument != "model_path":
            continue
        if model is None or not model.known or not isinstance(model.value, str):
            raise NotQueriedError("the model is unknown")
        if checkpoint is None:
            raise NotQueriedError(f"the config.json of {model.value} is not available")
        if checkpoint.path is not None and expand_user(model.value) == checkpoint.path:
            continue
        found.append((model.value, _complete_config(checkpoint)))
    return tuple(dict.fromkeys(found))


def _complete_config(checkpoint: Checkpoint) -> str:
    """Return the text of config.json. Raises NotQueriedError if the config is incomplete."""
    raw, name = checkpoint.field_or_none("raw"), checkpoint.name
    if isinstance(raw, PartialConfig) or checkpoint.unread:
        raise NotQueriedError(f"the config.json of {name} is only partly known")
    if checkpoint.quantization_config and "quantization_config" not in raw:
        raise NotQueriedError(f"the quantization of {name} is in a file next to its config.json")
    try:
        return json.dumps(raw, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise NotQueriedError(f"the config.json of {name} cannot be passed to the engine") from None


def _doubts(plan: Plan) -> Iterator[str]:
    for checkpoint in plan.facts.checkpoints:
        if checkpoint.origin is not None and checkpoint.origin.doubt is not None:
            yield f"the config.json of {checkpoint.name} is in doubt: {checkpoint.origin.doubt}"


def _machines(plan: Plan) -> tuple[str, ...]:
    """Return the hardware to emulate; an unset GPU count becomes the required count, else 8."""
    hardware = plan.facts.hardware
    if hardware is None:
        return ANY_MACHINE
    try:
        name = declare(hardware.name).name
    except InputError:
        text = f"the hardware {hardware.name} cannot be emulated"
        raise NotQueriedError(text) from None
    if name == "cpu":
        return (name,)
    count = hardware.known_count
    if count is None:
        try:
            count = gpus_needed(plan)
        except UnknownValueError:
            count = 8
    return (f"{name}:{count}",)


def _on_disk(plan: Plan) -> Iterator[str]:
    """Yield the paths of local model directories, and the file contents that validation reads."""
    for checkpoint in plan.facts.checkpoints:
        if checkpoint.path is None:
            continue
        yield str(checkpoint.path)
        for name in _CHECKPOINT_FILES:
            try:
                yield reads.read_bytes(checkpoint.path / name).decode("utf-8", "replace")
            except OSError:
                yield ""
