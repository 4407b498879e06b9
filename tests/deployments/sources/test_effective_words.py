"""What `sglang serve` and `--config` make of a command before the parser sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.deployments.sources.effective_words import EffectiveWords, effective, followed
from speclaunch.deployments.sources.files import read_file, read_shell, read_text
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.deployments.sources.requests import from_invocation
from speclaunch.engine.plan.request import Request
from speclaunch.engine.releases.catalogue import load
from tests.support.loops import rows

MISSING = "arguments are required"


def command(line: str) -> Invocation:
    (found,) = read_shell(line + "\n", "x.sh").invocations
    return found


def given(found: EffectiveWords) -> list[str]:
    return [word.text for word in found.words]


def refusals(request: Request) -> list[str]:
    return [problem.message for problem in request.problems]


@rows(
    "line, version, words, refused",
    [
        # cli/serve.py:49 of 0.5.16; 0.5.15.post1 has no such function
        ("m --tp 2", "0.5.16", ["--model-path", "m", "--tp", "2"], False),
        ("m --tp 2", "0.5.23", ["--model-path", "m", "--tp", "2"], False),
        ("m --tp 2", "0.5.15.post1", ["m", "--tp", "2"], True),
        ("--tp 2 m", "0.5.23", ["--tp", "2", "m"], True),
        # a later --model-path wins in argparse
        ("m --model-path o", "0.5.23", ["--model-path", "m", "--model-path", "o"], False),
        # cli/serve.py:16 of 0.5.10
        ("--model-type llm --model-path m", "0.5.10.post1", ["--model-path", "m"], False),
        ("--model-type=llm m", "0.5.16", ["--model-path", "m"], False),
        ("--model-path m --model-type auto", "0.5.23", ["--model-path", "m"], False),
        ("--model-type llm --model-path m", "0.5.9", ["--model-type", "llm", "--model-path", "m"],
         False),
        ("--model-type nope --model-path m", "0.5.16", ["--model-path", "m"], True),
        ("--model-type nope --model-path m", "0.5.20", ["--model-path", "m"], False),  # a plugin
        # cli/utils.py:106: --model counts from 0.5.11
        ("--model m", "0.5.11", ["--model", "m"], False),
        ("--model m", "0.5.10.post1", ["--model", "m"], True),
        ("--model-path=m", "0.5.9", ["--model-path=m"], False),
        # no program of this name before 0.5.5
        ("--model-path m", "0.5.4.post3", ["--model-path", "m"], True),
        ("--model-path m", "0.5.5.post3", ["--model-path", "m"], False),
    ],
)  # fmt: skip
def test_sglang_serve(line: str, version: str, words: list[str], refused: bool) -> None:
    found = effective(command(f"sglang serve {line}"), load(version))
    assert given(found) == words
    assert bool(found.refused) is refused


def test_the_model_of_sglang_serve_has_its_own_place() -> None:
    request = from_invocation(command("sglang serve Qwen/Qwen3-8B --tp 2"), "x", load("0.5.23"))
    assert not request.problems
    model = request.values["model_path"]
    assert (model.value, model.place.column) == ("Qwen/Qwen3-8B", 14)


def test_a_missing_model_is_told_once() -> None:
    request = from_invocation(command("sglang serve --tp 2"), "x", load("0.5.23"))
    assert [MISSING in said for said in refusals(request)] == [True]


@rows("more", ['"$@"', "$EXTRA_ARGS", "${ARGS[@]}", "$MORE", "--$KEY=3", "--no-$X=${Y}"])
def test_what_may_be_any_number_of_words_is_no_argument(more: str) -> None:
    server = "python3 -m sglang.launch_server"
    for line in (f"{server} --model m {more} --tp 2", f"{server} --model m --tp 2 {more}"):
        request = from_invocation(command(line), "x", load("0.5.23"))
        assert not request.problems
        assert request.values["tp_size"].value == 2
    assert not from_invocation(command(f"{server} {more}"), "x", load("0.5.23")).problems


CONFIG = "model-path: meta/x\ntp-size: 4\ntrust-remote-code: true\nport: 1\n"


def scripted(tmp_path: Path, line: str, config: str | None = CONFIG) -> Invocation:
    if config is not None:
        (tmp_path / "conf.yaml").write_text(config)
    path = tmp_path / "run.sh"
    path.write_text(line + "\n")
    (found,) = read_file(path).invocations
    return found


@pytest.mark.parametrize("version", ["0.5.3.post3", "0.5.9", "0.5.14", "0.5.23"])
def test_the_file_comes_first_and_the_command_wins(version: str, tmp_path: Path) -> None:
    line = "python3 -m sglang.launch_server --port 2 --config conf.yaml --host h"
    found = scripted(tmp_path, line)
    assert given(effective(found, load(version))) == [
        "--model-path", "meta/x", "--tp-size", "4", "--trust-remote-code", "--port", "1",
        "--port", "2", "--host", "h",
    ]  # fmt: skip
    request = from_invocation(found, "x", load(version))
    assert not request.problems and request.unseen is None
    assert request.values["port"].value == 2
    assert request.values["tp_size"].place.path.endswith("conf.yaml")
    assert request.values["tp_size"].place.line == 2


def test_before_0_5_3_there_is_no_config(tmp_path: Path) -> None:
    found = scripted(tmp_path, "python3 -m sglang.launch_server --config conf.yaml")
    assert any(MISSING in said for said in refusals(from_invocation(found, "x", load("0.5.2"))))


def test_sglang_serve_looks_for_the_model_on_the_command_line_alone(tmp_path: Path) -> None:
    """cli/utils.py `get_model_path`, every release."""
    found = scripted(tmp_path, "sglang serve --config conf.yaml")
    for version in ("0.5.9", "0.5.23"):
        assert [MISSING in s for s in refusals(from_invocation(found, "x", load(version)))] == [
            True
        ]
    found = scripted(tmp_path, "sglang serve meta/y --config conf.yaml")
    request = from_invocation(found, "x", load("0.5.23"))
    assert not request.problems and request.values["model_path"].value == "meta/y"


def test_a_file_that_is_not_there_is_not_judged(tmp_path: Path) -> None:
    found = scripted(tmp_path, "python3 -m sglang.launch_server --config conf.yaml --tp 2", None)
    request = from_invocation(found, "x", load("0.5.23"))
    assert not request.problems
    assert request.unseen == "--config conf.yaml: no such file here"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--config a.yaml --config b.yaml", "Multiple config files"),
        ("--tp 2 --config", "No config file specified"),
        ("--config a.json", "must be YAML format"),
    ],
)
def test_what_the_engine_says_of_the_option_itself(line: str, said: str, tmp_path: Path) -> None:
    found = scripted(tmp_path, f"python3 -m sglang.launch_server --model m {line}", None)
    (problem,) = from_invocation(found, "x", load("0.5.23")).problems
    assert said in problem.message


def test_with_an_equals_sign_the_engine_reads_nothing(tmp_path: Path) -> None:
    found = scripted(tmp_path, "python3 -m sglang.launch_server --config=conf.yaml")
    request = from_invocation(found, "x", load("0.5.23"))
    assert any(MISSING in said for said in refusals(request)) and request.remarks


@pytest.mark.parametrize(
    ("version", "words"),
    [
        # `boolean_actions` is always empty there: server_args.py:4986 of 0.5.7
        ("0.5.7", ["--on", "--json-model-override-args", "{'a': 1}"]),
        ("0.5.9", ["--on", "true", "--off", "false", "--json-model-override-args", "{'a': 1}"]),
        ("0.5.14", ["--on", "true", "--off", "false", "--json-model-override-args", '{"a": 1}']),
    ],
)
def test_values_by_version(version: str, words: list[str], tmp_path: Path) -> None:
    config = '"on": true\n"off": false\njson-model-override-args: {a: 1}\n'
    config += "disable-radix-cache: false\n"
    line = "python3 -m sglang.launch_server --config conf.yaml"
    found = effective(scripted(tmp_path, line, config), load(version))
    assert given(found) == words


def test_a_file_outside_of_what_is_checked_is_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "repository"
    inside.mkdir()
    (tmp_path / "secret.yaml").write_text("api-key: s3cret\nmodel-path: m\n")
    (inside / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    for name in ("../secret.yaml", "link.yaml", str(tmp_path / "secret.yaml")):
        found = scripted(inside, f"python3 -m sglang.launch_server --config {name}", None)
        assert found.config is not None and found.config.text is None
        assert "outside" in (found.config.why or "")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: [", b"- a\n", b"&a [*a]\n", b"\0"])
def test_a_hostile_file_is_told_and_hides_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_bytes(content)
    line = "python3 -m sglang.launch_server --config conf.yaml --nope"
    request = from_invocation(scripted(tmp_path, line, None), "x", load("0.5.23"))
    assert any("--nope" in said for said in refusals(request))
    assert request.unseen is not None


def test_a_container_has_files_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(CONFIG)
    line = "docker run lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --config conf.yaml"
    reading = read_shell(line + "\n", "x.sh")
    (found,) = followed(reading, tmp_path / "x.sh").invocations
    assert found.config is not None and found.config.why == "it is in the container"


def test_a_value_behind_an_unknown_flag_is_no_stray() -> None:
    for words in ("--$(x) false --tp 8", "$ARGS m --tp 8"):
        (found,) = read_shell(f"python3 -m sglang.launch_server {words}\n", "x.sh").invocations
        kept = effective(found, load("0.5.23")).words
        assert [word.text for word in kept] == ["--tp", "8"], words


def test_a_field_of_the_engine_is_no_abbreviation() -> None:
    text = "import sglang as sgl\nsgl.Engine(model_path='m', return_hidden_states=True)\n"
    (found,) = read_text(text, "x.py").invocations
    words = effective(found, load("0.5.23")).words
    assert [word.text for word in words] == ["--model-path", "m", "--return_hidden_states"]
