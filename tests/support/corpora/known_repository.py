"""A repository as teams keep it, with known defects at known places: what a linter has to find.

Sound deployments get one defect each, or none. Where an argument stands in a text is told by the
writer of the text, which marks it, never by a reader of ours.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.corpora.known_defects import DEFECTS, EXTRAS, SOUND, Defect, Sound

Args = dict[str, Any]
Places = dict[str, tuple[str, int, int]]
"""Path, line and column of each argument."""

_MARK = re.compile("\x01([a-z0-9_]+)\x02")
"""An argument's name, in front of the word with which it begins."""


def _mark(name: str) -> str:
    return f"\x01{name}\x02"


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file of the repository, and what is wrong in it."""

    path: str
    text: str
    form: str
    engine: str | None
    """The release that it is for; None: it does not say."""
    args: Mapping[str, Any] = field(default_factory=dict)
    defect: Defect | None = None
    place: tuple[str, int, int] | None = None
    """Path, line and column of the defect: it may be in a group."""

    @property
    def fixed(self) -> Args:
        """The arguments once the defect is fixed."""
        assert self.defect is not None and self.defect.fixed is not None
        return _changed(dict(self.args), self.defect.fixed)


def repository(recipes: int, others: int, seed: int = 14) -> tuple[list[KnownFile], dict[str, str]]:
    """The files with deployments, and the groups that the recipes are composed of."""
    groups, defects = _groups()
    files = [_recipe(number, seed, defects) for number in range(recipes)]
    files += [_other(number, seed) for number in range(others)]
    return files, groups


def write(folder: Path, files: list[KnownFile], groups: Mapping[str, str]) -> None:
    """Write the repository."""
    for path, text in [*((one.path, one.text) for one in files), *groups.items()]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, newline="")


def expected(files: list[KnownFile]) -> set[tuple[str, int, int, str, str]]:
    """Path, line, column, code and severity of each defect."""
    return {
        (*one.place, one.defect.code, one.defect.severity)
        for one in files
        if one.defect is not None and one.place is not None
    }


def _changed(args: Args, change: Mapping[str, Any]) -> Args:
    args |= change
    return {name: value for name, value in args.items() if value is not None}


def _picked(dice: random.Random) -> tuple[Sound, str, Args, Defect | None]:
    sound = dice.choice(SOUND)
    version = dice.choice(sound.versions)
    # 0.5.12 takes the port 10,000 above it, too
    args = dict(sound.args) | {"port": dice.randint(20000, 50000)}
    args |= dict(dice.sample(EXTRAS, dice.randint(0, 4)))
    defect = None
    if dice.random() < 0.6:
        fitting = [
            one
            for one in DEFECTS
            if (not one.only or sound.name in one.only) and version in one.versions
        ]
        defect = dice.choice(fitting)
        args = _changed(args, defect.args)
    head = {"model_path": args.pop("model_path")}
    rest = list(args.items())
    dice.shuffle(rest)
    return sound, version, head | dict(rest), defect


def _finished(path: str, marked: str) -> tuple[str, Places]:
    """The text without its marks, and the place of each."""
    places: Places = {}
    lines = []
    for number, line in enumerate(marked.split("\n"), 1):
        plain = line
        while (found := _MARK.search(plain)) is not None:
            places[found[1]] = (path, number, found.start() + 1)
            plain = plain[: found.start()] + plain[found.end() :]
        lines.append(plain)
    return "\n".join(lines), places


# Recipes.


def _groups() -> tuple[dict[str, str], dict[str, tuple[Defect, Places]]]:
    """Groups of `model` and `speculation`; two of them have a defect of their own."""
    groups: dict[str, str] = {}
    wrong: dict[str, tuple[Defect, Places]] = {}
    for sound in SOUND:
        model = {k: v for k, v in sound.args.items() if not k.startswith("speculative_")}
        speculation = {k: v for k, v in sound.args.items() if k.startswith("speculative_")}
        groups[f"recipes/model/{sound.name}.yaml"] = _group(f"model/{sound.name}", model)[0]
        path = f"speculation/{sound.name}"
        groups[f"recipes/{path}.yaml"] = _group(path, speculation)[0]
        for number, defect in enumerate(DEFECTS):
            if defect.code not in ("SPL105", "SPL110", "SPL505"):
                continue
            if defect.only and sound.name not in defect.only:
                continue
            path = f"speculation/{sound.name}_wrong{number}"
            text, places = _group(path, _changed(dict(speculation), defect.args))
            groups[f"recipes/{path}.yaml"] = text
            wrong[path.partition("/")[2]] = (defect, places)
    return groups, wrong


def _group(name: str, args: Mapping[str, Any]) -> tuple[str, Places]:
    lines = ["# @package _global_", f"# What {name} takes.", "args:"]
    lines += [f"  {_mark(key)}{key}: {_yaml(value)}" for key, value in args.items()]
    return _finished(f"recipes/{name}.yaml", "\n".join(lines) + "\n")


def _recipe(
    number: int,
    seed: int,
    wrong: Mapping[str, tuple[Defect, Places]],
) -> KnownFile:
    dice = random.Random(f"{seed}/known/recipe/{number}")
    sound, version, args, defect = _picked(dice)
    path = f"recipes/team_{number // 100}_{number:04}.yaml"
    lines = [f"# Deployment {number} of the search team.", "defaults:"]
    own: Args = args
    speculation, place = sound.name, None
    if dice.random() < 0.8:
        changed = defect.args if defect is not None else {}
        own = {k: v for k, v in args.items() if k in changed or sound.args.get(k, _MISSING) != v}
        if defect is not None and any(defect.args[k] is None for k in defect.args):
            own, speculation = args, ""
        if speculation and defect is None and dice.random() < 0.1:
            fitting = [one for one in wrong if one.startswith(f"{sound.name}_wrong")]
            if fitting:
                speculation = dice.choice(fitting)
                defect, places = wrong[speculation]
                args = _changed(args, defect.args)
                place = places[defect.at]
        if speculation:
            lines += [f"  - model: {sound.name}", f"  - speculation: {speculation}"]
    lines += ["  - _self_", "engine:", f'  version: "{version}"', "hardware:", "  name: h200:8"]
    lines.append("args:")
    for key, value in own.items():
        if dice.random() < 0.1:
            lines.append("  # As measured in March.")
        aside = "  # see the run book" if dice.random() < 0.1 else ""
        lines.append(f"  {_mark(key)}{key}: {_yaml(value)}{aside}")
    text, places = _finished(path, "\n".join(lines) + "\n")
    if defect is not None and place is None:
        place = places[defect.at]
    return KnownFile(path, text, "recipe", version, args, defect, place)


_MISSING = object()


def _yaml(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) and ":" in value else _plain(value)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Scripts and manifests.

Option = tuple[str, str, str | None]
"""Argument, flag with its mark, value."""


def _options(args: Mapping[str, Any]) -> list[Option]:
    return [
        (name, f"{_mark(name)}--{name.replace('_', '-')}", None if value is True else str(value))
        for name, value in args.items()
    ]


def _other(number: int, seed: int) -> KnownFile:
    dice = random.Random(f"{seed}/known/other/{number}")
    form, (write, ending) = dice.choice(list(FORMS.items()))
    _sound, version, args, defect = _picked(dice)
    path = f"deploy/{form}/{number:04}{ending}"
    text, places = _finished(path, write(dice, version, _options(args)))
    place = None if defect is None else places[defect.at]
    return KnownFile(path, text, form, version, args, defect, place)


_GPUS = "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"
_START = "python3 -m sglang.launch_server"


def _words(options: list[Option]) -> Iterator[str]:
    for _, flag, value in options:
        yield flag
        if value is not None:
            yield value


def _said(option: Option, dice: random.Random) -> str:
    _, flag, value = option
    if value is None:
        return flag
    return f"{flag}{'=' if dice.random() < 0.15 else ' '}{value}"


def _script(dice: random.Random, _version: str, options: list[Option]) -> str:
    said = [_said(one, dice) for one in options]
    lines = ["#!/usr/bin/env bash", "# Serves the chat front end.", "set -euo pipefail", ""]
    lines += ["export NCCL_DEBUG=WARN", "", " \\\n  ".join([_START, *said]), ""]
    return "\n".join(lines)


def _one_line(dice: random.Random, _version: str, options: list[Option]) -> str:
    said = " ".join(_said(one, dice) for one in options)
    return (
        f"#!/bin/sh\nCUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 {_START} {said} 2>&1 | tee server.log\n"
    )


def _array(dice: random.Random, _version: str, options: list[Option]) -> str:
    lines = ["#!/usr/bin/env bash", "set -e", "ARGS=("]
    for one in options:
        if dice.random() < 0.1:
            lines.append("  # As the gateway wants it.")
        lines.append(f"  {_said(one, dice)}")
    lines += [")", f'exec {_START} "${{ARGS[@]}}"', ""]
    return "\n".join(lines)


def _crlf(dice: random.Random, version: str, options: list[Option]) -> str:
    return _compose(dice, version, options).replace("\n", "\r\n")


def _compose(dice: random.Random, version: str, options: list[Option]) -> str:
    lines = ["services:", "  sglang:", f"    image: lmsysorg/sglang:v{version}"]
    lines += ["    network_mode: host", "    shm_size: 16gb"]
    if dice.random() < 0.5:
        lines += ["    command:", "      - python3", "      - -m", "      - sglang.launch_server"]
        lines += [f"      - {_quoted(word)}" for word in _words(options)]
    else:
        lines += ["    command: >-", f"      {_START}"]
        lines += [f"      {_said(one, dice)}" for one in options]
    lines += ["    restart: unless-stopped", ""]
    return "\n".join(lines)


def _quoted(word: str) -> str:
    found = _MARK.match(word)
    mark, plain = (found[0], word[found.end() :]) if found else ("", word)
    safe = re.fullmatch(r"-?-?[A-Za-z][\w./-]*", plain)
    return f"{mark}{plain}" if safe else f'{mark}"{plain}"'


def _kubernetes(dice: random.Random, version: str, options: list[Option]) -> str:
    pad = "          "
    lines = [
        "apiVersion: apps/v1",
        "kind: Deployment",
        "metadata:",
        "  name: sglang",
        "spec:",
        "  template:",
        "    spec:",
        "      hostNetwork: true",
        "      volumes:",
        "        - {name: shm, emptyDir: {medium: Memory}}",
        "      containers:",
        "        - name: server",
        f"          image: lmsysorg/sglang:v{version}-cu129",
    ]
    if dice.random() < 0.5:
        lines += [f"{pad}command: [python3, -m, sglang.launch_server]", f"{pad}args:"]
        lines += [f"{pad}  - {_quoted(word)}" for word in _words(options)]
    else:
        lines += [f"{pad}command: [bash, -c]", f"{pad}args:", f"{pad}  - |", f"{pad}    set -e"]
        said = f" \\\n{pad}      ".join(["exec " + _START, *(_said(one, dice) for one in options)])
        lines.append(f"{pad}    {said}")
    lines += [f"{pad}volumeMounts:", f"{pad}  - {{name: shm, mountPath: /dev/shm}}"]
    lines += [
        f"{pad}resources:",
        f"{pad}  limits:",
        f'{pad}    nvidia.com/gpu: "{_gpus(options)}"',
        "",
    ]
    return "\n".join(lines)


def _gpus(options: list[Option]) -> int:
    """As many as the ranks, at least those of a host."""
    sizes = [_MARK.sub("", str(value)) for _, flag, value in options if flag.endswith("--tp-size")]
    return max([8, *(int(size) for size in sizes if size.isdecimal())])


def _markdown(dice: random.Random, version: str, options: list[Option]) -> str:
    said = " \\\n  ".join([_START, *(_said(one, dice) for one in options)])
    return (
        f"# How to serve it\n\nWith the image v{version}:\n\n```bash\n{said}\n```\n\nThat is all.\n"
    )


Writer = Callable[[random.Random, str, list[Option]], str]
FORMS: dict[str, tuple[Writer, str]] = {
    "script": (_script, ".sh"),
    "one_line": (_one_line, ".sh"),
    "array": (_array, ".sh"),
    "compose": (_compose, ".yaml"),
    "compose_crlf": (_crlf, ".yaml"),
    "kubernetes": (_kubernetes, ".yaml"),
    "markdown": (_markdown, ".md"),
}
