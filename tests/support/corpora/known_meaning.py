"""What a file of the generated repository asks for, read without any of our readers: by a real
bash that starts nothing, by plain YAML, and by how Hydra lays the groups of a recipe."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from tests.support.bash import Sandbox
from tests.support.corpora.known_repository import Args

_FENCED = re.compile(r"^```bash\n(.*?)^```$", re.M | re.S)
_SERVER = "sglang.launch_server"


def asked(path: str, form: str, texts: Mapping[str, str], sandbox: Sandbox) -> dict[str, str]:
    """The arguments by their names, as texts; `texts` are all files by their paths."""
    text = texts[path]
    if form == "recipe":
        return as_texts(_composed(path, texts))
    if form in ("compose", "compose_crlf"):
        (service,) = yaml.safe_load(text)["services"].values()
        command = service["command"]
        return arguments(command if isinstance(command, list) else shlex.split(command))
    if form == "kubernetes":
        (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
        if container["command"] != ["bash", "-c"]:
            return arguments(container["command"] + container["args"])
        (text,) = container["args"]
    if form == "markdown":
        (text,) = _FENCED.findall(text)
    (command,) = sandbox.run(text.removeprefix("#!/bin/sh\n")).commands
    return arguments(command.words)


def as_texts(args: Mapping[str, Any]) -> dict[str, str]:
    """Values as a command line says them; a switch is `true`."""
    return {
        name: str(value).lower() if value is True else str(value) for name, value in args.items()
    }


def arguments(words: Sequence[str]) -> dict[str, str]:
    """The flags behind the server's name, by the names of their arguments."""
    found: dict[str, str] = {}
    rest = list(words[list(words).index(_SERVER) + 1 :])
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        found[flag.removeprefix("--").replace("-", "_")] = value
    return found


def _composed(path: str, texts: Mapping[str, str]) -> Args:
    """The arguments of a recipe: those of its groups, then its own."""
    recipe = yaml.safe_load(texts[path])
    args: Args = {}
    for item in recipe["defaults"]:
        if item == "_self_":
            continue
        ((group, option),) = item.items()
        home = PurePosixPath(path).parent
        args |= yaml.safe_load(texts[str(home / group / f"{option}.yaml")])["args"]
    args |= recipe.get("args") or {}
    return {name: value for name, value in args.items() if value is not None}
