"""Names and values of others steer neither a terminal nor the log of a CI service."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from speclaunch.app.verbs.options import LintFormat
from speclaunch.core.safe_text import CommandGuard, obeys_commands, printable
from tests.support import program
from tests.support.loops import rows

STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
)
OBEYED = re.compile(r"^\s*::|##(?:vso)?\[", re.M)
EVIL = "\x1b]0;x\x07\x1b[31m\x9b\u202e\u2066\u200b\u2028\r[red]a[/red]\n::error ::x\n##[error]##vso[task.x]"
NAME = EVIL.replace("/", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files whose names and values are hostile."""
    found = tmp_path_factory.mktemp("hostile")
    command = f"python3 -m sglang.launch_server --model-path 'a/{EVIL}' --tp 3 --dtype '{EVIL}'"
    for name in (f"{NAME}.sh", "plain.sh"):
        (found / name).write_text(f"{command} '--{EVIL}' --speculative-algo NEXTN\n")
    quoted = json.dumps(EVIL)[1:-1]
    recipe = (
        f'defaults: [base, "{quoted}"]\ndescription: "{quoted}"\n'
        f'args: {{model_path: "{quoted}", "{quoted}": "{quoted}"}}\n'
        f'engine: {{env: {{X: "{quoted}"}}}}\n'
    )
    for name in (f"{NAME}.yaml", "plain.yaml"):
        (found / name).write_text(recipe)
    good = (
        "defaults: [base, {model: llama31_8b}, {speculation: ngram}, _self_]\n"
        f'description: "{quoted}"\nargs: {{served_model_name: "{quoted}"}}\n'
        f'engine: {{env: {{X: "{quoted}"}}}}\n'
    )
    (found / "good.yaml").write_text(good)
    (found / "old.sh").write_text(
        f"X='{EVIL}' python3 -m sglang.launch_server --model-path a/b --enable-ep-moe --tp 2\n"
    )
    log = f"server_args=ServerArgs(model_path='{EVIL}')\nTraceback (most recent call last):\n"
    for name in (f"{NAME}.log", "plain.log"):
        (found / name).write_text(f"{log}  File 'x'\nRuntimeError: {EVIL}\n")
    return found


VERBS = (
    ("lint", "."),
    ("lint", f"{NAME}.sh", f"{NAME}.yaml", "missing" + NAME),
    ("lint", ".", "--diff"),
    *(("lint", ".", "--output-format", one) for one in LintFormat),
    ("plan", "recipe=good.yaml"),
    ("plan", "recipe=good.yaml", "--output-format", "json"),
    ("plan", "recipe=plain.yaml"),
    ("plan", f"recipe={NAME}.yaml", f"args.{NAME}=1"),
    ("--dry-run", "--force", "recipe=good.yaml"),
    ("--dry-run", "--force", "recipe=good.yaml", "--output-format", "json"),
    ("--dry-run", "--force", f"recipe={NAME}.yaml"),
    ("render", "recipe=good.yaml", "--to", "shell", "--bare"),
    ("render", "recipe=good.yaml", "--to", "kubernetes"),
    ("render", "recipe=good.yaml", "--to", NAME),
    ("migrate", "old.sh", "--from", "0.4.9.post6", "--to", "0.5.23", "--diff"),
    ("migrate", f"{NAME}.sh", "--to", NAME),
    ("import", "plain.sh"),
    ("import", f"{NAME}.sh"),
    ("diagnose", "plain.log"),
    ("diagnose", f"{NAME}.log", "--output-format", "json"),
    ("diagnose", "missing" + NAME),
    ("doctor", f"recipe={NAME}.yaml"),
    ("explain", NAME),
    ("runs", "show", NAME),
    ("logs", NAME),
    ("stop", NAME),
    ("models", "inspect", NAME),
    ("drafts", NAME),
    (f"--{NAME}",),
    (NAME,),
    ("lint", f"--{NAME}"),
    ("lint", ".", "--output-format", NAME),
    ("recipes", "copy", NAME),
)


def shown_lines(text: str) -> str:
    """The text without the guarded parts and commands that are ours."""
    text = re.sub(r"::stop-commands::([0-9a-f]{32})\n(.*?)\n::\1::\n", "", text, flags=re.S)
    return "\n".join(
        line
        for line in text.split("\n")
        if not re.match(r"::(?:error|warning|notice) (?:file|title)=|##vso\[task\.logissue ", line)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("words", VERBS, ids=lambda words: ascii(" ".join(words[:4]))[:60])
@pytest.mark.parametrize("actions", ["true", ""])
def test_no_verb_lets_it_out(words: tuple[str, ...], actions: str, folder: Path) -> None:
    env = {**os.environ, "GITHUB_ACTIONS": actions, "CI": actions, "NO_COLOR": "1"}
    done = program.run(*words, cwd=folder, env=env)
    assert done.returncode in (0, 1, 2, 3), done.stderr
    is_payload = words[0] in ("render", "import", "migrate") or "--diff" in words
    for stream in (done.stdout, done.stderr):
        if stream is done.stdout and is_payload:  # a file is written exactly
            continue
        assert not STEERING.search(stream), ascii(STEERING.search(stream))
        if actions:
            assert not OBEYED.search(shown_lines(stream)), ascii(stream)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ("lint", "."),
        ("plan", "recipe=good.yaml"),
        ("migrate", "old.sh", "--from", "0.4.9.post6", "--to", "0.5.23", "--diff"),
        ("diagnose", "plain.log"),
        (f"--{NAME}",),
    ],
    ids=lambda words: words[0][:8],
)
def test_a_terminal_gets_no_codes_but_ours(words: tuple[str, ...], folder: Path) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [*program.COMMAND, *words], cwd=folder, stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            more = os.read(ours, 1 << 16)
        except OSError:
            break
        if not more:
            break
        told += more
    done.wait(timeout=60)
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", told.decode())
    assert "\x1b]0;" not in text and "\x07" not in text
    assert not re.search(r"[\x9b\u202e\u2066\u2028\x1b]", text)
    assert b"\x1b[31m\x9b" not in told


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ("migrate", "old.sh", "--from", "0.4.9.post6", "--to", "0.5.23", "--diff"),
        ("import", "plain.sh"),
        ("render", "recipe=good.yaml", "--to", "shell", "--bare", "--force"),
    ],
    ids=lambda words: words[0],
)
def test_a_pipe_of_a_ci_service_gets_no_command_in_a_file(
    words: tuple[str, ...], folder: Path
) -> None:
    env = {**os.environ, "GITHUB_ACTIONS": "true"}
    done = subprocess.run(
        [*program.COMMAND, *words], cwd=folder, env=env, capture_output=True, check=False
    )
    assert done.stdout
    text = done.stdout.decode().replace("\r\n", "\n")
    assert not OBEYED.search(text) and not STEERING.search(text)


@rows(
    "pieces",
    [
        ["::error ::x"],
        ["a\n ::x"],
        [":", ":x"],
        ["  ", ":", ":x"],
        ["a ##[group]"],
        ["#", "#[x]"],
        ["##v", "so[x]"],
        ["a\n", "\u3000::x"],
    ],
)
def test_a_command_is_broken_in_any_pieces(pieces: list[str]) -> None:
    guard = CommandGuard()
    assert not OBEYED.search("".join(map(guard.text, pieces)))


@rows("text", ["a::b", "std::x y\n", "## [x]", "[x]\n", "key: [1, 2]\n", ": x"])
def test_other_text_is_unchanged(text: str) -> None:
    assert CommandGuard().text(text) == text == printable(text)


def test_who_obeys() -> None:
    assert obeys_commands({"GITHUB_ACTIONS": "true"}) and obeys_commands({"TF_BUILD": "True"})
    assert not obeys_commands({})
