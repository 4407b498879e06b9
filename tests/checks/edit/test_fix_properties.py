"""Generated files: a fix changes what it names and nothing else, once; nothing crashes.

What the files say is read by a judge that has nothing of ours: bash for scripts, plain YAML for
manifests; the words go through our parser on both sides alike.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from speclaunch.checks.edit.checked_text import fixed_commands, fixed_recipe
from speclaunch.checks.edit.edits import NotFixableError, applied, text_edits_between
from speclaunch.checks.rules.interface import DeploymentPlace, Fix
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import recipe_name
from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.renames import canonical

VERSION = "0.5.23"
ARGUMENTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "page_size": ("--page-size", (1, 16, 64)),
    "tp_size": ("--tp-size", (1, 2)),
    "mem_fraction_static": ("--mem-fraction-static", (0.5, 0.75)),
    "served_model_name": ("--served-model-name", ("x", "it's", "a b", "$HOME", "ü")),
    "disable_radix_cache": ("--disable-radix-cache", (True,)),
    "cuda_graph_bs_decode": ("--cuda-graph-bs-decode", ([1], [1, 2, 4])),
    "speculative_num_steps": ("--speculative-num-steps", (3, 5)),
    "host": ("--host", ("0.0.0.0", "::")),
    "json_model_override_args": ("--json-model-override-args", ('{"a": "b c"}', "{}")),
}
VARIABLES = {"X": ("1", "a b"), "SGLANG_Y": ("0",)}


def spelled(name: str, value: Any) -> list[str]:
    flag = ARGUMENTS[name][0]
    if value is True:
        return [flag]
    return [flag, *map(str, value)] if isinstance(value, list) else [flag, str(value)]


@st.composite
def deployments(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    names = draw(st.lists(st.sampled_from(sorted(ARGUMENTS)), unique=True, max_size=6))
    args = {name: draw(st.sampled_from(ARGUMENTS[name][1])) for name in names}
    env = {
        name: draw(st.sampled_from(VARIABLES[name]))
        for name in draw(st.lists(st.sampled_from(sorted(VARIABLES)), unique=True))
    }
    return args, env


@st.composite
def fixes(draw: st.DrawFn) -> Fix:
    names = draw(st.lists(st.sampled_from(sorted(ARGUMENTS)), unique=True, max_size=3))
    values = {name: draw(st.sampled_from((*ARGUMENTS[name][1], None))) for name in names}
    variables = draw(st.lists(st.sampled_from(sorted(VARIABLES)), unique=True, max_size=1))
    env = {name: draw(st.sampled_from((*VARIABLES[name], None))) for name in variables}
    assume(values or env)
    return Fix("", values, env)


@st.composite
def scripts(draw: st.DrawFn) -> str:
    lines = ["#!/bin/bash", "# start", "A=1"]
    for number in range(draw(st.integers(1, 2))):
        args, env = draw(deployments())
        prefix, rows, array = "", [f"--model-path m{number}"], []
        for name, value in env.items():
            if draw(st.booleans()):
                lines.append(
                    f"export {name}={shlex.quote(value)}{draw(st.sampled_from(('', ' # e')))}"
                )
            else:
                prefix += f"{name}={shlex.quote(value)} "
        for name, value in args.items():
            flag, *values = spelled(name, value)
            how = draw(st.sampled_from(("plain", "equals", "variable", "array", "quoted")))
            if how == "equals" and len(values) == 1:
                rows.append(f"{flag}={shlex.quote(values[0])}")
            elif how == "variable" and len(values) == 1:
                lines.append(f"V{number}_{name}={shlex.quote(values[0])}")
                rows.append(f'{flag} "$V{number}_{name}"')
            elif how == "array":
                array.append(shlex.join([flag, *values]))
            elif how == "quoted":
                rows.append(" ".join([f'"{flag}"', *map(shlex.quote, values)]))
            else:
                rows.append(shlex.join([flag, *values]))
        if array:
            between = draw(st.sampled_from((" ", "\n  ", " # c\n  ")))
            lines.append(f"ARGS{number}=({between}{between.join(array)}\n)")
            rows.append(f'"${{ARGS{number}[@]}}"')
        rows = draw(st.permutations(rows))
        between = draw(st.sampled_from((" ", " \\\n  ", " \\\n\t")))
        tail = draw(st.sampled_from(("", " > log 2>&1", " &", " 2>&1 | tee log")))
        server = "python3 -m sglang.launch_server"
        lines.append(prefix + between.join([server, *rows]) + tail)
        lines.append(draw(st.sampled_from(("wait", "echo done # d", "", "sleep 1"))))
    return "\n".join(lines) + draw(st.sampled_from(("\n", "", "\n\n")))


@st.composite
def manifests(draw: st.DrawFn) -> str:
    services = []
    for number in range(draw(st.integers(1, 2))):
        args, env = draw(deployments())
        words = ["python3", "-m", "sglang.launch_server", "--model-path", f"m{number}"]
        for name, value in args.items():
            group = spelled(name, value)
            joined = len(group) == 2 and draw(st.booleans())
            words += ["=".join(group)] if joined else group
        words = [word.replace("$", "$$") for word in words]
        rows = [f"  s{number}:", "    image: i  # mine"]
        if env:
            flow = draw(st.sampled_from(("map", "list", "flow")))
            pairs = {**env, "KEPT": "1"}
            if flow == "map":
                rows += [
                    "    environment:",
                    *(f"      {n}: {json.dumps(v)}  # v" for n, v in pairs.items()),
                ]
            elif flow == "list":
                rows += ["    environment:", *(f"    - {n}={v}" for n, v in pairs.items())]
            else:
                listed = ", ".join(f"{n}: '{v}'" for n, v in pairs.items())
                rows.append(f"    environment: {{{listed}}}")
        how = draw(st.sampled_from(("block", "flow", "lines", "folded")))
        if how == "block":
            quote = draw(st.sampled_from((json.dumps, _single)))
            rows += ["    command:", *(f"      - {quote(word)}" for word in words)]
        elif how == "flow":
            rows.append(f"    command: {json.dumps(words, ensure_ascii=False)}")
        elif how == "lines":
            rows += ["    command: [", *(f"      {json.dumps(word)}," for word in words), "    ]"]
        else:
            rows += ["    command: >-", *(f"      {shlex.quote(word)}" for word in words)]
        services += [*rows, "    restart: always"]
    return "services:\n" + "\n".join(services) + draw(st.sampled_from(("\n", "")))


def _single(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


Said = list[tuple[dict[str, Any], dict[str, str]]]


def of_words(words: list[str]) -> dict[str, Any]:
    parsed = parse_argv(words, load(VERSION), with_values=False)
    assert not [one for one in parsed.problems if one.index is not None]
    return {canonical(item.dest): item.stored for item in parsed.parsed}


def by_bash(text: str, folder: Path) -> Said:
    """What the script starts: a `python3` that only writes down what it was given."""
    log = folder / "said.bin"
    log.unlink(missing_ok=True)
    (folder / "python3").write_text(
        f"#!/bin/sh\n{{ printf '%s\\0' $# \"$@\"; env -0; printf '\\0'; }} >> '{log}'\n"
    )
    for name in ("sleep", "tee"):
        (folder / name).write_text("#!/bin/sh\n")
    for name in ("python3", "sleep", "tee"):
        (folder / name).chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/home/user"}
    script = text.replace(" &\n", "\n").removesuffix(" &")  # in order
    subprocess.run(["bash", "-c", script], cwd=folder, env=env, check=False, capture_output=True)
    parts = log.read_text().split("\0") if log.exists() else []
    found = []
    while len(parts) > 1:
        count = int(parts[0])
        end = parts.index("", count + 1)
        given = dict(one.split("=", 1) for one in parts[count + 1 : end])
        kept = {name: value for name, value in given.items() if name in (*VARIABLES, "A")}
        found.append((of_words(parts[3 : count + 1]), kept))  # after `-m sglang.launch_server`
        parts = parts[end + 1 :]
    return found


def by_yaml(text: str, _folder: Path) -> Said:
    found = []
    for service in yaml.safe_load(text)["services"].values():
        command = service["command"]
        words = shlex.split(command) if isinstance(command, str) else command
        assert all(isinstance(word, str) for word in words)
        env = service.get("environment", {})
        pairs = dict(one.split("=", 1) for one in env) if isinstance(env, list) else env
        assert all(isinstance(one, str) for one in pairs.values())
        found.append((of_words([word.replace("$$", "$") for word in words[3:]]), pairs))
    return found


def wanted(said: Said, number: int, fix: Fix) -> Said:
    args, env = (dict(one) for one in said[number])
    for name, value in fix.set.items():
        args.pop(name, None)
        if value is not None:
            args |= of_words(spelled(name, value))
    for name, text in fix.env.items():
        env.pop(name, None)
        if text is not None:
            env[name] = text
    return [*said[:number], (args, env), *said[number + 1 :]]


def ask(text: str, name: str, fix: Fix, folder: Path, *, windows: bool = False) -> None:
    judge = by_yaml if name.endswith(".yaml") else by_bash
    given_ = text.replace("\n", "\r\n") if windows else text
    invocations = read_text(given_, name).invocations
    before = judge(text, folder)
    assert len(before) == len(invocations)
    for number, one in enumerate(invocations):
        about = [DeploymentPlace(one.place, one.name or recipe_name(name))]
        try:
            after = fixed_commands(given_, name, None, about, fix, load(VERSION))
        except NotFixableError:
            continue
        assert applied(given_, text_edits_between(given_, after)) == after
        assert not windows or after.count("\n") == after.count("\r\n")
        assert judge(after.replace("\r\n", "\n"), folder) == wanted(before, number, fix)
        again = read_text(after, name).invocations[number]
        about = [DeploymentPlace(again.place, again.name or recipe_name(name))]
        try:
            once_more = fixed_commands(after, name, None, about, fix, load(VERSION))
        except NotFixableError as error:
            assert str(error) == "nothing needs to change"
        else:
            assert once_more == after


QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.thorough
@given(scripts(), fixes())
@QUICK
def test_scripts(tmp_path_factory: pytest.TempPathFactory, text: str, fix: Fix) -> None:
    ask(text, "run.sh", fix, tmp_path_factory.mktemp("bash"))


@pytest.mark.thorough
@given(manifests(), fixes(), st.booleans())
@QUICK
def test_manifests(
    tmp_path_factory: pytest.TempPathFactory, text: str, fix: Fix, windows: bool
) -> None:
    ask(text, "compose.yaml", fix, tmp_path_factory.getbasetemp(), windows=windows)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@given(scripts(), fixes())
@LONG
def test_many_scripts(tmp_path_factory: pytest.TempPathFactory, text: str, fix: Fix) -> None:
    ask(text, "run.sh", fix, tmp_path_factory.mktemp("bash"))


@pytest.mark.thorough
@pytest.mark.timeout(900)
@given(manifests(), fixes(), st.booleans())
@LONG
def test_many_manifests(
    tmp_path_factory: pytest.TempPathFactory, text: str, fix: Fix, windows: bool
) -> None:
    ask(text, "compose.yaml", fix, tmp_path_factory.getbasetemp(), windows=windows)


@st.composite
def recipes(draw: st.DrawFn) -> tuple[str, str]:
    """A recipe and the group that it chooses."""
    args, env = draw(deployments())
    below, _ = draw(deployments())
    rows = [f"{name}: {_yaml(value)}" for name, value in {"model_path": "m", **below}.items()]
    group = "# @package args\n" + "".join(f"{row}  # g\n" for row in rows)
    lines = ["# mine", "name: mine", "defaults: [base, model: m, _self_]"]
    if env:
        pairs = ", ".join(f'{name}: "{value}"' for name, value in env.items())
        block = "".join(f'\n    {name}: "{value}"  # v' for name, value in env.items())
        lines.append(
            draw(st.sampled_from((f"engine: {{env: {{{pairs}}}}}", f"engine:\n  env:{block}")))
        )
    if args:
        flow = ", ".join(f"{name}: {_yaml(value)}" for name, value in args.items())
        block = "".join(
            f"\n  {name}:{draw(st.sampled_from((' ', '  ')))}{_yaml(value)}{draw(st.sampled_from(('', '  # c')))}"
            for name, value in args.items()
        )
        lines.append(
            draw(
                st.sampled_from((f"args: {{{flow}}}", f"args:{block}", f"args:{block}\n\n# after"))
            )
        )
    tail = draw(st.sampled_from(("", "\n", "\nlog:\n  requests: false\n")))
    return "\n".join(lines) + tail.replace("log:\n  requests: false\n", "# end\n"), group


def _yaml(value: Any) -> str:
    return json.dumps(value)


def of_recipe(text: str, group: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What a recipe says, the group below it; null is nothing."""
    own = yaml.safe_load(text)
    found = yaml.safe_load(group) | (own.get("args") or {})
    env = (own.get("engine") or {}).get("env") or {}
    return (
        {name: value for name, value in found.items() if value is not None},
        {name: value for name, value in env.items() if value is not None},
    )


def ask_recipe(text: str, group: str, fix: Fix, folder: Path, *, windows: bool) -> None:
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "m.yaml").write_text(group)
    given_ = text.replace("\n", "\r\n") if windows else text
    path = folder / "mine.yaml"
    path.write_bytes(given_.encode())
    args, env = of_recipe(given_, group)
    for into, values in ((args, fix.set), (env, fix.env)):
        for name, value in values.items():
            into.pop(name, None)
            if value is not None:
                into[name] = value
    try:
        after = fixed_recipe(given_, "mine.yaml", path, fix, load(VERSION))
    except NotFixableError as error:
        assert str(error) in ("nothing needs to change", "no edit of its text applies the fix"), (
            error
        )
        return
    assert applied(given_, text_edits_between(given_, after)) == after
    assert not windows or after.count("\n") == after.count("\r\n")
    assert of_recipe(after, group) == (args, env)
    comments = [line.partition("#")[2] for line in text.split("\n") if "#" in line]
    kept = [line.partition("#")[2].rstrip("\r") for line in after.split("\n") if "#" in line]
    assert len(comments) - len(fix.set) - len(fix.env) <= len(kept) <= len(comments)
    with contextlib.suppress(NotFixableError):
        assert fixed_recipe(after, "mine.yaml", path, fix, load(VERSION)) == after


@pytest.mark.thorough
@given(recipes(), fixes(), st.booleans())
@QUICK
def test_recipes(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, str], fix: Fix, windows: bool
) -> None:
    ask_recipe(*drawn, fix, tmp_path_factory.mktemp("recipe"), windows=windows)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@given(recipes(), fixes(), st.booleans())
@LONG
def test_many_recipes(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, str], fix: Fix, windows: bool
) -> None:
    ask_recipe(*drawn, fix, tmp_path_factory.mktemp("recipe"), windows=windows)
