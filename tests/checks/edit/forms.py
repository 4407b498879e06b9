"""One deployment written in every form that a fix is applied to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Words = Sequence[str]
Env = Mapping[str, str]

SERVER = ("python3", "-m", "sglang.launch_server")


def pairs(words: Words) -> list[list[str]]:
    """Each flag with its values."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return found


def script(words: Words, env: Env) -> str:
    lines = [
        "#!/bin/bash",
        "# about to start",
        *(f"export {n}={shlex.quote(v)}" for n, v in env.items()),
    ]
    lines.append(
        " \\\n    ".join([shlex.join(SERVER), *map(shlex.join, pairs(words))]) + " > log 2>&1 &"
    )
    return "\n".join([*lines, "wait  # for it", ""])


def one_line(words: Words, env: Env) -> str:
    before = "".join(f"{n}={shlex.quote(v)} " for n, v in env.items())
    return f"{before}{shlex.join([*SERVER, *words])}\necho done\n"


def equals(words: Words, env: Env) -> str:
    """`--flag=value`, with the line ends of Windows in a text that is no script."""
    joined = [
        "=".join(map(shlex.quote, one)) if len(one) == 2 else shlex.join(one)
        for one in pairs(words)
    ]
    docker = "".join(f"-e {n}={shlex.quote(v)} " for n, v in env.items())
    return f"docker run --gpus all {docker}image {shlex.join(SERVER)} {' '.join(joined)}"


def array(words: Words, env: Env) -> str:
    rows = "".join(f"  {shlex.join(one)}  # why\n" for one in pairs(words))
    exports = "".join(f"export {n}={shlex.quote(v)}; " for n, v in env.items())
    return f'ARGS=(\n{rows})\n{exports}exec {shlex.join(SERVER)} "${{ARGS[@]}}"\n'


def variables(words: Words, env: Env) -> str:
    """Every single value in a variable."""
    lines = [f"export {n}={shlex.quote(v)}" for n, v in env.items()]
    said = []
    for number, (flag, *values) in enumerate(pairs(words)):
        if len(values) == 1:
            lines.append(f"V{number}={shlex.quote(values[0])} # of {number}")
            said.append(f'{flag} "$V{number}"')
        else:
            said.append(shlex.join([flag, *values]))
    lines.append(" ".join([shlex.join(SERVER), *said]))
    return "\n".join(lines) + "\n"


def markdown(words: Words, env: Env) -> str:
    before = "".join(f"{n}={shlex.quote(v)} " for n, v in env.items())
    text = " \\\n  ".join([before + shlex.join(SERVER), *map(shlex.join, pairs(words))])
    return f"# How to\n\nRun it:\n\n```bash\n{text}\n```\n\nThat is all.\n"


def compose_block(words: Words, env: Env) -> str:
    items = "".join(f"      - {json.dumps(_dollars(w))}\n" for w in [*SERVER, *words])
    given = "".join(f"      {n}: {json.dumps(_dollars(v))}\n" for n, v in env.items())
    environment = f"    environment:\n      OTHER: '1'  # keep\n{given}" if env else ""
    return f"services:\n  sglang:\n    image: mine # not ours\n{environment}    command:\n{items}    ports: ['1:1']\n"


def compose_flow(words: Words, env: Env) -> str:
    given = "".join(f"      - {n}={_dollars(v)}\n" for n, v in env.items())
    environment = f"    environment:\n      - OTHER=1\n{given}" if env else ""
    listed = json.dumps([_dollars(w) for w in [*SERVER, *words]])
    return f"services:\n  a:\n    command: {listed}\n{environment}"


def compose_text(words: Words, env: Env) -> str:
    """A folded text without backslashes."""
    given = "".join(f"      {n}: {json.dumps(_dollars(v))}\n" for n, v in env.items())
    environment = f"    environment: &env\n      OTHER: '1'\n{given}" if env else ""
    rows = "".join(f"      {_dollars(shlex.join(one))}\n" for one in [SERVER, *pairs(words)])
    return f"services:\n  a:\n{environment}    command: >\n{rows}    restart: always\n"


def _dollars(text: str) -> str:
    return text.replace("$", "$$")


def kubernetes(words: Words, env: Env) -> str:
    items = "".join(f"        - {json.dumps(w)}\n" for w in words)
    given = "".join(
        f"        - name: {n}\n          value: {json.dumps(v)}\n" for n, v in env.items()
    )
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    spec:\n"
        f"      containers:\n      - name: c\n        command: {json.dumps(list(SERVER))}\n        args:\n{items}"
        f"        env:\n        - name: OTHER\n          value: '1'\n{given}"
        "        resources: {limits: {nvidia.com/gpu: 8}}\n"
    )


def kubernetes_script(words: Words, env: Env) -> str:
    """A script in a block scalar, the last line without an end."""
    exports = "".join(f"          export {n}={shlex.quote(v)}\n" for n, v in env.items())
    rows = " \\\n            ".join(map(shlex.join, [SERVER, *pairs(words)]))
    return (
        "kind: Pod\napiVersion: v1\nspec:\n  containers:\n    - name: c\n"
        "      command: [bash, -c]\n      args:\n        - |\n"
        f"          set -e\n{exports}          exec {rows}"
    )


COMMANDS: dict[str, Callable[[Words, Env], str]] = {
    "script.sh": script,
    "line.sh": one_line,
    "equals.sh": equals,
    "array.sh": array,
    "variables.sh": variables,
    "page.md": markdown,
    "compose-block.yaml": compose_block,
    "compose-flow.yaml": compose_flow,
    "compose-text.yaml": compose_text,
    "kubernetes.yaml": kubernetes,
    "kubernetes-script.yaml": kubernetes_script,
}
"""By the name of a file: how it writes a command."""


def config(args: Mapping[str, Any]) -> str:
    rows = "".join(f"{n.replace('_', '-')}: {json.dumps(v)}\n" for n, v in args.items())
    return f"# for --config\n{rows}# the end"


def recipe(args: Mapping[str, Any], env: Env, version: str) -> str:
    rows = "".join(f"  {n}: {json.dumps(v)}  # {n[:3]}\n" for n, v in args.items())
    given = "".join(f"\n    {n}: {json.dumps(v)}" for n, v in env.items())
    section = f"\n  env:{given}" if env else ""
    return (
        f'# mine\nname: mine\ndefaults: [base, _self_]\nengine:\n  version: "{version}"{section}\n'
        f"args:\n{rows}\nnotes: kept\n".replace("\nnotes: kept\n", "\n# the end\n")
    )


def recipe_of_groups(args: Mapping[str, Any], env: Env, version: str) -> tuple[str, str]:
    """The recipe, and the group that says its arguments."""
    rows = "".join(f"{n}: {json.dumps(v)}\n" for n, v in args.items())
    given = ", ".join(f"{n}: {json.dumps(v)}" for n, v in env.items())
    section = f", env: {{{given}}}" if env else ""
    return (
        f'name: mine\ndefaults:\n  - base\n  - model: m\n  - _self_\nengine: {{version: "{version}"{section}}}\n',
        f"# @package args\n{rows}",
    )
