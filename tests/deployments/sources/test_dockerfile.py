"""Dockerfiles: what `docker run` of each stage starts, with the place of each word."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.core.errors import InputError
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation, Reading
from speclaunch.deployments.sources.requests import from_invocation
from speclaunch.deployments.sources.source_text import is_dockerfile
from speclaunch.engine import load
from tests.support.deployments.sources.helpers import SERVER, at, env, only, slices, texts
from tests.support.loops import rows

FROM = "FROM lmsysorg/sglang:v0.5.9\n"


def read(text: str) -> Reading:
    return read_text(text, "Dockerfile")


def docker(text: str) -> Invocation:
    found = read(text)
    assert not found.unread
    assert not found.misread
    return only(found)


@pytest.mark.parametrize("instruction", ["CMD", "ENTRYPOINT", "cmd"])
@pytest.mark.parametrize("form", ["shell", "exec"])
def test_both_forms_of_a_command(instruction: str, form: str) -> None:
    words = [*SERVER.split(), "--model-path", "a/b", "--tp", "2"]
    given_ = json.dumps(words) if form == "exec" else " ".join(words)
    text = f"{FROM}{instruction} {given_}\n"
    if instruction == "ENTRYPOINT" and form == "exec":
        text += 'CMD ["--port", "1"]\n'
        words += ["--port", "1"]
    found = docker(text)
    assert texts(found) == words[3:]
    assert slices(text, found) == words[3:]
    assert found.image == "lmsysorg/sglang:v0.5.9"


def test_an_entrypoint_in_shell_form_ignores_the_command() -> None:
    found = docker(f'{FROM}ENTRYPOINT {SERVER} --tp 2\nCMD ["--port", "1"]\n')
    assert texts(found) == ["--tp", "2"]


def test_an_entrypoint_without_a_command_is_given_words_when_it_runs() -> None:
    found = docker(f"{FROM}ENTRYPOINT {json.dumps(SERVER.split())}\n")
    assert [(word.text, word.evaluated) for word in found.words] == [("$@", False)]


def test_an_entrypoint_that_runs_its_words_is_given_a_shell_form_as_a_script() -> None:
    found = docker(f'{FROM}ENTRYPOINT ["/entrypoint.sh"]\nCMD {SERVER} --tp 2\n')
    assert texts(found) == ["--tp", "2"]


def test_an_image_without_a_model_is_completed_when_it_runs() -> None:
    for form in ('ENTRYPOINT {}\nCMD ["--tp", "2"]', "CMD {}"):
        found = docker(
            FROM + form.format(json.dumps([*SERVER.split(), "--mem-fraction-static", "1"])) + "\n"
        )
        assert not from_invocation(found, "x", load("0.5.23")).problems, form
        assert found.words[-1].text == "$@" and not found.words[-1].evaluated


def test_lines_go_on_behind_comments_and_empty_lines() -> None:
    text = f"{FROM}CMD {SERVER} \\\n  # one\n\n  --tp 2 \\  \n# two\n  --port 1\nEXPOSE 1\n"
    found = docker(text)
    assert texts(found) == ["--tp", "2", "--port", "1"]
    assert [at(word) for word in found.words] == [(5, 3), (5, 8), (7, 3), (7, 10)]
    text = (
        f'{FROM}CMD ["python3", "-m", \\\n # one\n "sglang.launch_server", \\\n "--model", "m"]\n'
    )
    assert [at(word) for word in docker(text).words] == [(5, 3), (5, 14)]


def test_another_escape_character() -> None:
    assert texts(docker(f"# escape=`\n{FROM}CMD {SERVER} `\n --tp 2\n")) == ["--tp", "2"]


def test_variables_are_those_of_the_image() -> None:
    text = (
        "ARG TAG=v0.5.9\nFROM lmsysorg/sglang:${TAG} AS base\nARG PORT=1\nARG NONE\n"
        'ENV MODEL=a/b TP="2" \\\n    P2=$PORT\nENV OLD the rest\n'
        f"CMD {SERVER} --model-path $MODEL --tp ${{TP}} --port $P2 --x $PORT --y ${{NO:-z}}\n"
    )
    found = docker(text)
    assert texts(found)[1::2] == ["a/b", "2", "1", "$PORT", "z"]
    assert not found.words[7].evaluated
    assert at(found.words[1]) == (5, 11)
    assert env(found) == {"MODEL": "a/b", "TP": "2", "P2": "1", "OLD": "the rest"}
    assert found.image == "lmsysorg/sglang:v0.5.9"


def test_an_exec_form_starts_no_shell() -> None:
    reading = read(f"{FROM}ENV M=a/b\nCMD {json.dumps([*SERVER.split(), '--model-path', '$M'])}\n")
    assert texts(reading.invocations[0]) == ["--model-path", "$M"]
    (problem,) = reading.misread
    assert "`$M` is passed unchanged" in problem.message
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (3, 64)


def test_a_list_that_is_not_json_is_told() -> None:
    reading = read(f'{FROM}CMD ["python3", "-m", "sglang.launch_server", "--model", "m",]\n')
    assert texts(reading.invocations[0]) == ["--model", "m"]
    assert "is not JSON" in reading.misread[0].message


def test_a_shell_in_an_exec_form() -> None:
    script = f'cd /x && exec {SERVER} --model-path "$MODEL" --tp 2'
    text = f"{FROM}ENV MODEL=a/b\nENTRYPOINT {json.dumps(['/bin/bash', '-c', script])}\n"
    found = docker(text)
    assert texts(found) == ["--model-path", "a/b", "--tp", "2"]
    assert at(found.words[2]) == (3, text.split("\n")[2].index("--tp") + 1)


def test_stages_have_what_they_build_on() -> None:
    text = (
        f"{FROM[:-1]} AS base\nENV MODEL=a/b\nCMD {SERVER} --tp 1 --model-path $MODEL\n"
        "FROM base AS same\nRUN true\n"
        f"FROM base AS other\nENTRYPOINT {SERVER} --tp 2 --model-path $MODEL\n"
        f"FROM nvidia/cuda:12.6\nCMD {SERVER} --tp 3 --model-path $MODEL\n"
    )
    found = read(text).invocations
    assert [texts(one)[1:] for one in found] == [
        ["1", "--model-path", "a/b"],
        ["2", "--model-path", "a/b"],
        ["3", "--model-path", "$MODEL"],
    ]
    assert [one.image for one in found] == ["lmsysorg/sglang:v0.5.9"] * 2 + ["nvidia/cuda:12.6"]


def test_a_build_that_starts_a_server_or_writes_its_script() -> None:
    text = (
        f"{FROM}RUN {SERVER} --tp 1\nRUN <<EOF\n{SERVER} --tp 2\nEOF\n"
        f"COPY --chmod=755 <<'END' /start.sh\n#!/bin/sh\n{SERVER} --tp 3\nEND\n"
        f"RUN echo '{SERVER} --tp 4' > /x\nHEALTHCHECK CMD {SERVER} --tp 5\n"
        f"ONBUILD CMD {SERVER} --tp 6\n"
    )
    assert [at(one.words[1]) for one in read(text).invocations] == [(2, 42), (4, 38), (8, 38)]


ECHO = (
    "RUN echo '#!/bin/bash\\n\\\n# the model\\n\\\nM=${NAME:-m}\\n\\\n"
    f"{SERVER} \\\\\\n\\\n  --model-path $M --tp 2\\n\\\n' > /app/start.sh && chmod +x /app/start.sh\n"
)
"""A script that `echo` writes in a build: `\\n` ends its lines, `\\` those of the Dockerfile."""


@rows(
    "command",
    [
        'CMD ["/bin/bash", "/app/start.sh"]',
        'ENTRYPOINT ["./start.sh"]',
        "CMD exec /app/start.sh --more",
        'ENTRYPOINT ["bash"]\nCMD ["/app/start.sh"]',
    ],
)
def test_a_script_that_echo_writes_and_the_stage_starts(command: str) -> None:
    text = f"{FROM}ENV A=1\n{ECHO}{command}\n"
    found = docker(text)
    assert texts(found) == ["--model-path", "m", "--tp", "2"]
    assert env(found) == {"A": "1"} and found.image == "lmsysorg/sglang:v0.5.9"
    assert at(found.words[3]) == (7, 24) and slices(text, found)[0] == "--model-path"


def test_a_script_that_echo_writes_and_another_stage_starts() -> None:
    assert not read(f'{FROM}{ECHO}CMD ["/app/other.sh"]\n').invocations
    built = read(
        f'FROM a AS b\n{ECHO}FROM b\nENV A=1\nCMD ["/app/start.sh"]\nFROM c\nCMD start.sh\n'
    )
    assert [env(found) for found in built.invocations] == [{"A": "1"}]
    for written in ("echo -e 'X' >> s.sh", 'printf "X" >s.sh', 'echo "X" | tee /s.sh'):
        run = f"FROM a\nRUN {written.replace('X', SERVER + ' --tp 2')}\nCMD /s.sh\n"
        assert len(read(run).invocations) == ("tee" not in run)


def test_what_a_dockerfile_is_called() -> None:
    named = ("Dockerfile", "x/Dockerfile.cu126", "app.dockerfile", "Containerfile", "dockerfile-x")
    assert all(is_dockerfile(name) for name in named)
    assert not any(is_dockerfile(name) for name in ("Dockerfile.md", "docker.sh", "x", "run.sh"))
    assert is_dockerfile("<stdin>", "# x\nARG A=1\nFROM a:b AS c\n")
    assert not is_dockerfile("<stdin>", "FROM x import y\n")


PIECES = st.sampled_from(
    ["FROM a AS b\n", "FROM b\n", "CMD ", "ENTRYPOINT ", "ENV A=", "ENV A b\n", "ARG A\n", "$A", "${A:-",
     "\\\n", "# c\n", "\n", '["', '", "', '"]\n', "RUN <<EOF\n", "EOF\n", f"{SERVER} --tp 2", "`", "'", '"',
     "\\", "SHELL [\"x\"]\n", "ONBUILD ", " ", "}", "# escape=`\n"]
)  # fmt: skip


@pytest.mark.thorough
@given(st.lists(PIECES, max_size=25))
def test_any_dockerfile_is_read(pieces: list[str]) -> None:
    with contextlib.suppress(InputError):
        read("".join(pieces))


@pytest.mark.thorough
@given(st.lists(PIECES, max_size=12), st.lists(PIECES, max_size=12))
def test_a_literal_command_is_found_in_any_dockerfile(before: list[str], after: list[str]) -> None:
    # a separate stage: other stages cannot change its last command
    text = f"{FROM}CMD {SERVER} --tp 77\n"
    rest = "".join(after)
    whole = "".join(before) + "\nEOF\n\nEOF\n" + text + "FROM z\n" + rest
    if "escape" in whole:
        return
    found = [texts(one) for one in read(whole).invocations]
    assert ["--tp", "77"] in found
