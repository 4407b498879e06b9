"""Texts that start a server, as people write them: seeded, and the same on every machine."""

from __future__ import annotations

import hashlib
import random
import shlex
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from speclaunch.engine.releases.catalogue import held_versions, load
from tests.support.corpora.arguments import Use, as_yaml, draw

SEED = 20261122
COUNT = 2000

MODEL = ("meta-llama/Llama-3.1-8B-Instruct", "/models/target", "zai-org/GLM-4.6")


@dataclass(frozen=True, slots=True)
class Text:
    """One file that starts a server, and the versions it goes from and to."""

    id: str
    kind: str
    name: str
    """The name of its file."""
    text: str
    version: str
    """The version that it is written for."""
    to: str
    told: bool = True
    """Whether `migrate` is told the version that it comes from."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What lies beside it."""


def generate(
    count: int = COUNT,
    seed: int = SEED,
    *,
    versions: Container[str] | None = None,
    begin: int = 0,
    step: int = 1,
) -> list[Text]:
    """That many texts; the first of a longer list are those of a shorter one.

    With `versions` only those of them that go from one of these, or to one; with `step` every so
    many, from `begin` on.
    """
    numbers = range(begin, count, step)
    return [text for number in numbers if (text := _one(number, seed, versions))]


def digest(texts: Iterable[Text]) -> str:
    """A fingerprint of texts."""
    return hashlib.sha256("\n".join(map(repr, texts)).encode()).hexdigest()


def _one(number: int, seed: int, versions: Container[str] | None) -> Text | None:
    dice = random.Random(f"{seed}/{number}")
    kinds = list(KINDS)
    kind = kinds[number % len(kinds)] if number % 2 else dice.choice(("command", "array"))
    held = list(held_versions())
    first = held.index(_FIRST.get(kind, held[0]))
    version = dice.choice(held[first:])
    others = [v for v in held[first:] if v != version]
    newer = [v for v in others if held.index(v) > held.index(version)]
    to = dice.choice(newer if newer and dice.random() < 0.8 else others)
    if versions is not None and version not in versions and to not in versions:
        return None
    name, text, files = KINDS[kind](Writer(version, dice))
    told = dice.random() < 0.75
    return Text(f"{kind}-{number:04}", kind, name, text, version, to, told, files)


_FIRST = {"engine": "0.5.3.post3", "with-config": "0.5.3.post3", "serve": "0.5.5.post3"}
"""The first held version that has `--config`, and `sglang serve`."""


Written = tuple[str, str, dict[str, str]]


class Writer:
    """Writes arguments in shell, as one of many people would."""

    def __init__(self, version: str, dice: random.Random) -> None:
        self.version = version
        self.dice = dice
        self.before: list[str] = []
        """Lines that define what the command uses."""
        self._names = 0

    def chance(self, of: float) -> bool:
        """Whether, this time."""
        return self.dice.random() < of

    def uses(self, count: int | None = None) -> list[Use]:
        """Arguments of this text."""
        return draw(self.version, self.dice, count=count)

    def quote(self, text: str) -> str:
        """A word in one of the ways that bash reads as this word."""
        plain = shlex.quote(text)
        if plain == text and self.chance(0.7):
            return text
        if not set(text) & set("\"$`\\!'") and self.chance(0.6):
            return f'"{text}"'
        return plain if plain != text else f"'{text}'"

    def value(self, text: str) -> str:
        """A value: as it is, in a variable, or as the default of one."""
        roll = self.dice.random()
        if roll > 0.2 or not text or set(text) & set("\"'$`\\!{}[]#= "):
            return self.quote(text)
        name = self.name()
        if roll < 0.08:
            export = "export " if self.chance(0.2) else ""
            self.before.append(f"{export}{name}={self.quote(text)}")
            return self.dice.choice((f'"${name}"', f"${{{name}}}", f"${name}"))
        if roll < 0.15:
            return self.dice.choice((f"${{{name}:-{text}}}", f'"${{{name}:-{text}}}"'))
        self.before.append(f'{name}="${{{name}:-{text}}}"')
        return f'"${{{name}}}"'

    def name(self) -> str:
        """A variable's name that no other has."""
        self._names += 1
        return f"{self.dice.choice(('TP', 'MODEL', 'SIZE', 'PORT', 'OPT', 'V'))}_{self._names}"

    def said(self, use: Use, prefix: str = "") -> str:
        """An argument with its values."""
        flag = use.flag.replace("--", f"--{prefix}", 1)
        if use.one and self.chance(0.3):
            return f"{flag}={self.value(use.values[0])}"
        if len(use.values) > 1:
            return " ".join([flag, *map(self.quote, use.values)])
        return " ".join([flag, *map(self.value, use.values)])

    def model(self) -> str:
        """The target."""
        flag = self.dice.choice(("--model-path", "--model-path", "--model"))
        if "--model" not in load(self.version).arguments["--model-path"].flags:
            flag = "--model-path"
        return f"{flag} {self.value(self.dice.choice(MODEL))}"

    def program(self) -> str:
        """How the engine is started."""
        return self.dice.choice(("python3", "python")) + " -m sglang.launch_server"

    def prefix(self) -> str:
        """Variables in front of the command."""
        if self.chance(0.75):
            return ""
        return self.dice.choice(
            ("CUDA_VISIBLE_DEVICES=0,1 ", "NCCL_DEBUG=INFO OMP_NUM_THREADS=1 ", "SGLANG_X='a b' ")
        )

    def header(self) -> list[str]:
        """The first lines."""
        lines = ["#!/usr/bin/env bash"] if self.chance(0.6) else []
        lines += self.dice.choice(([], ["set -e"], ["set -euo pipefail"], ["set -x", ""]))
        lines += ["export NCCL_IB_DISABLE=1"] if self.chance(0.2) else []
        return lines + (["# serve the model"] if self.chance(0.3) else [])

    def lines(self, command: Iterable[str]) -> str:
        """The script around a command."""
        return "\n".join([*self.header(), *self.before, *command]) + "\n"


def _command(writer: Writer, start: str | None = None) -> Written:
    """One command, on one line or continued."""
    parts = [start or writer.program(), writer.model()]
    parts += [writer.said(use) for use in writer.uses()]
    wrap = writer.dice.choice(("", "", "exec ", "nohup "))
    prefix = "" if wrap == "exec " else writer.prefix()
    joint = " " if writer.chance(0.3) else writer.dice.choice((" \\\n  ", " \\\n    ", " \\\n"))
    tail = writer.dice.choice(("", "", " 2>&1 | tee server.log", " > server.log 2>&1"))
    return "run.sh", writer.lines([prefix + wrap + joint.join(parts) + tail]), {}


def _serve(writer: Writer) -> Written:
    return _command(writer, "sglang serve")


def _array(writer: Writer) -> Written:
    """An array, with comments, extended under a condition, and handed over."""
    rows = [writer.model(), *(writer.said(use) for use in writer.uses())]
    body = [f"  {row}" + ("  # as measured" if writer.chance(0.15) else "") for row in rows]
    if writer.chance(0.3):
        body.insert(writer.dice.randint(0, len(body)), "  # --tp-size 16")
    lines = ["ARGS=(", *body, ")"]
    if writer.chance(0.4):
        extra = " ".join(writer.said(use) for use in writer.uses(1))
        lines += [f"ARGS+=({extra})"]
    if writer.chance(0.2):
        lines += ['if [ "${DEBUG:-0}" = 1 ]; then', "  ARGS+=(--log-level debug)", "fi"]
    every = writer.dice.choice(('"${ARGS[@]}"', "${ARGS[@]}", '"${ARGS[@]}" "$@"'))
    if every == "${ARGS[@]}" and any(set(row) & set("'*?") or " " in row for row in rows):
        every = '"${ARGS[@]}"'
    return "run.sh", writer.lines([*lines, f"{writer.prefix()}{writer.program()} {every}"]), {}


def _string(writer: Writer) -> Written:
    """Options in a variable that bash splits."""
    safe = [u for u in writer.uses() if not any(set(v) & set(" \"'$*?[{#\\") for v in u.values)]
    said = " ".join(" ".join([use.flag, *use.values]) for use in safe)
    lines = [f'OPTS="{said}"', *([] if writer.chance(0.5) else ['OPTS="$OPTS --log-requests"'])]
    return "run.sh", writer.lines([*lines, f"{writer.program()} {writer.model()} $OPTS"]), {}


def _function(writer: Writer) -> Written:
    """A function that starts the server in the background."""
    said = " \\\n    ".join(writer.said(use) for use in writer.uses())
    command = f"{writer.program()} {writer.model()} --port $1 \\\n    {said}"
    lines = ["start() {", f"  {command} &", "}", "start 30001", "wait"]
    return "run.sh", writer.lines(lines), {}


def _slime(writer: Writer) -> Written:
    """slime's arrays."""
    uses = [u for u in writer.uses() if u.argument.dest not in _NOT_SLIMES]
    rows = [f"   {writer.said(use, 'sglang-')}" for use in uses]
    lines = ["SGLANG_ARGS=(", "   --rollout-num-gpus-per-engine 8", *rows, ")", ""]
    lines += ["python3 train.py --hf-checkpoint /models/x \\", "   ${SGLANG_ARGS[@]}"]
    if any(set(v) & set(" '\"*?$") for use in uses for v in use.values):
        lines[-1] = '   "${SGLANG_ARGS[@]}"'
    return "train.sh", writer.lines(lines), {}


_NOT_SLIMES = frozenset(
    {
        "model_path",
        "trust_remote_code",
        "random_seed",
        "enable_memory_saver",
        "host",
        "port",
        "nccl_port",
        "nnodes",
        "node_rank",
        "dist_init_addr",
        "gpu_id_step",
        "base_gpu_id",
        "skip_server_warmup",
        "tp_size",
        "tensor_parallel_size",
        "pp_size",
        "pipeline_parallel_size",
    }
)


def _words(writer: Writer) -> list[str]:
    """A command as plain words."""
    words = ["python3", "-m", "sglang.launch_server", "--model-path", writer.dice.choice(MODEL)]
    for use in writer.uses():
        if use.one and writer.chance(0.3):
            words += [f"{use.flag}={use.values[0]}"]
        else:
            words += [use.flag, *use.values]
    return words


def _dump(document: Any, writer: Writer) -> str:
    flow = writer.dice.choice((False, None))
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=flow, allow_unicode=True)


def _compose(writer: Writer) -> Written:
    """A docker-compose file."""
    words = [word.replace("$", "$$") for word in _words(writer)]
    if writer.chance(0.3) and words[4] == "/models/target":
        words[4] = "${MODEL:-/models/target}"
    service: dict[str, Any] = {"image": f"lmsysorg/sglang:v{writer.version}", "shm_size": "32g"}
    if writer.chance(0.4):
        service["environment"] = {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1"}
    if writer.chance(0.3):
        service |= {"entrypoint": words[:3], "command": words[3:]}
    elif writer.chance(0.5):
        service["command"] = words
    else:
        service["command"] = " ".join(shlex.quote(word) for word in words)
    return "docker-compose.yaml", _dump({"services": {"sglang": service}}, writer), {}


def _kubernetes(writer: Writer) -> Written:
    """A Deployment."""
    words = [word.replace("$(", "$$(") for word in _words(writer)]
    container: dict[str, Any] = {"name": "sglang", "image": f"lmsysorg/sglang:v{writer.version}"}
    if writer.chance(0.4):
        container["env"] = [{"name": "TARGET", "value": words[4]}, {"name": "A", "value": "b"}]
        words[4] = "$(TARGET)"
    if writer.chance(0.35):
        script = " ".join([*words[:3], *map(shlex.quote, words[3:])]).replace(
            "'$(TARGET)'", '"$TARGET"'
        )
        container |= {"command": ["bash", "-c"], "args": [script]}
    elif writer.chance(0.6):
        container |= {"command": words[:3], "args": words[3:]}
    else:
        container["command"] = words
    spec = {"containers": [container]}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "sglang"},
        "spec": {"replicas": 1, "template": {"spec": spec}},
    }
    return "deployment.yaml", _dump(document, writer), {}


def _engine(writer: Writer) -> Written:
    """A file for the engine's own --config."""
    settings: dict[str, Any] = {"model-path": writer.dice.choice(MODEL)}
    for use in writer.uses():
        key = use.argument.flag.lstrip("-")
        if use.flag in use.argument.flags:
            key = use.flag.lstrip("-")
        settings[key.replace("-", "_") if writer.chance(0.1) else key] = as_yaml(use)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    comment = "# settings of the server\n" if writer.chance(0.3) else ""
    return "engine.yaml", comment + text, {}


def _with_config(writer: Writer) -> Written:
    """A command whose settings lie in a file beside it."""
    _, config, _ = _engine(Writer(writer.version, writer.dice))
    said = " ".join(writer.said(use) for use in writer.uses(2))
    command = f"{writer.program()} --config engine.yaml {said}".rstrip()
    return "run.sh", writer.lines([command]), {"engine.yaml": config}


def _document(writer: Writer) -> Written:
    """A page of Markdown with a command in it."""
    _, script, _ = _command(writer)
    body = "\n".join(line for line in script.splitlines() if not line.startswith("#!"))
    return "README.md", f"# Serving\n\nRun this:\n\n```bash\n{body}\n```\n\nThat is all.\n", {}


KINDS: Mapping[str, Callable[[Writer], Written]] = {
    "command": _command,
    "array": _array,
    "string": _string,
    "function": _function,
    "serve": _serve,
    "slime": _slime,
    "compose": _compose,
    "kubernetes": _kubernetes,
    "engine": _engine,
    "with-config": _with_config,
    "document": _document,
}
"""The kinds of texts, and who writes them."""
