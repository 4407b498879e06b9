"""systemd units, whose lines are read like a script's."""

from __future__ import annotations

from speclaunch.deployments.sources.files import read_markdown, read_text
from tests.support.deployments.sources.helpers import at, dropped, env, only, texts
from tests.support.loops import rows

UNIT = """\
[Unit]
Description=A server

[Service]
ExecStartPre=-/usr/bin/pkill -f "python -m sglang.launch_server --model-path m"
ExecStart=/opt/venv/bin/python -m sglang.launch_server \\
  --model-path m --port ${PORT}
Environment=A=1 "OTHER=value two" 'B=x "y"' SGLANG_C=a\\tb
Environment="PORT=30000" "PATH=/opt/bin:$PATH" \\
  HOME_OF=%h/x PERCENT=5%%
Environment=nonsense 'D=%h/$E' F=
EnvironmentFile=-/etc/sglang.env
Restart=always
"""


POWERSHELL = """\
$env:A = 'x'
$MODEL = 'D:\\m'
$TP = $COUNT + 1
if ($TP) {
    $MODEL2 = "y"
}
& docker run -e B=$env:B lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server `
  --model-path $MODEL `
  --tokenizer-path C:\\t\\u --tp $TP --revision $MODEL2 `
  --served-model-name $o.Name @more
"""


@rows("ending", ["\n", "\r\n"])
def test_powershell(ending: str) -> None:
    text = POWERSHELL.replace("\n", ending)
    for reading in (
        read_text(text.encode(), "x.ps1"),
        read_text(f"# A{ending}```powershell{ending}{text}```{ending}".encode(), "x.md"),
    ):
        found = only(reading)
        assert [w.text if w.evaluated else "?" for w in found.words] == [
            "--model-path",
            "D:\\m",
            "--tokenizer-path",
            "C:\\t\\u",
            "--tp",
            "?",
            "--revision",
            "?",
            "--served-model-name",
            "?",
            "?",
        ]
        assert found.image == "lmsysorg/sglang:v0.5.9"


def test_a_file_of_supervisord() -> None:
    text = """\
[supervisord]
nodaemon=true

[program:a]
environment=M="org/m"
command = python3 -m sglang.launch_server
  --model-path %(ENV_M)s
  --served-model-name 50%%
autostart=true
"""
    found = only(read_text(text, "supervisord.conf"))
    assert [w.text if w.evaluated else "?" for w in found.words] == (
        ["--model-path", "?", "--served-model-name", "50%"]
    )
    assert found.read_only


def test_the_environment_of_a_unit() -> None:
    found = only(read_text(UNIT, "sglang.service"))
    assert texts(found) == ["--model-path", "m", "--port", "30000"]
    assert env(found) == {
        "A": "1",
        "OTHER": "value two",
        "B": 'x "y"',
        "SGLANG_C": "a\\tb",
        "PORT": "30000",
        "PATH": "/opt/bin:$PATH",
        "HOME_OF": "%h/x",
        "PERCENT": "5%",
        "D": "%h/$E",
        "F": "",
    }
    assert [name for name, word in found.env.items() if not word.evaluated] == [
        "SGLANG_C",
        "HOME_OF",
        "D",
    ]
    assert at(found.env["OTHER"]) == (8, 24)
    assert [word.text for word in found.program] == [
        "/opt/venv/bin/python",
        "-m",
        "sglang.launch_server",
    ]
    assert (found.place.line, found.place.column) == (6, 11)
    assert dropped(found) == ["EnvironmentFile=-/etc/sglang.env"]


@rows(
    "start, expected",
    [
        ("/usr/bin/sglang serve m --tp 2", {"A": "1"}),
        ("-/usr/bin/env B=2 sglang serve m --tp 2", {"A": "1", "B": "2"}),
        ("/usr/bin/docker run -e B=2 image sglang serve m --tp 2", {"B": "2"}),
        ("+/bin/bash -c 'export C=$A; exec sglang serve m --tp 2'", {"A": "1", "C": "1"}),
    ],
)
def test_programs_of_a_unit(start: str, expected: dict[str, str]) -> None:
    found = only(read_text(f"Environment=A=1\nExecStart=\nExecStart={start}\n", "x.service"))
    assert texts(found) == ["m", "--tp", "2"]
    assert env(found) == expected


def test_an_empty_assignment_clears_the_environment_of_a_unit() -> None:
    text = "Environment=A=1\nEnvironment=\nEnvironment=B=2\nExecStart=/bin/sglang serve m\n"
    assert env(only(read_text(text, "x.service"))) == {"B": "2"}


def test_a_unit_in_a_document() -> None:
    for language in ("ini", ""):
        document = f"Edit the unit:\n\n```{language}\n{UNIT}```\n"
        found = only(read_markdown(document, "x.md"))
        assert env(found)["OTHER"] == "value two" and "ExecStart" not in env(found)


def test_a_script_that_writes_a_unit() -> None:
    text = f"cat > x.service <<'EOF'\n{UNIT}EOF\nEnvironment=A=1 sglang serve m --tp 2\n"
    unit, later = read_text(text, "x.sh").invocations
    assert texts(unit) == texts(only(read_text(UNIT, "x.service")))
    assert env(unit)["OTHER"] == "value two" and env(later) == {"Environment": "A=1"}


QUADLET = """\
[Unit]
Description=SGLang (one GPU)

[Container]
Image=docker.io/lmsysorg/sglang:v0.5.10
ContainerName=sglang
# the server's own environment
Environment=SGLANG_A=1 "SGLANG_B=two words"
Environment=PORT=40000 HOME_OF=%h/x
EnvironmentFile=/etc/sglang.env
PodmanArgs=--ipc=host -e SGLANG_C=3
Exec=python3 -m sglang.launch_server \\
  --model-path "m" --port ${PORT} --host ${HOST}

[Service]
Environment=PORT=30000
Restart=always
"""


def test_the_container_of_a_quadlet() -> None:
    """Podman gets the environment of `[Service]`, and the container that of `[Container]`."""
    found = only(read_text(QUADLET, "sglang.container"))
    assert texts(found) == ["--model-path", "m", "--port", "30000", "--host", "${HOST}"]
    assert [word.evaluated for word in found.words] == [True] * 5 + [False]
    assert env(found) == {
        "SGLANG_A": "1",
        "SGLANG_B": "two words",
        "PORT": "40000",
        "HOME_OF": "%h/x",
        "SGLANG_C": "3",
    }
    assert [name for name, word in found.env.items() if not word.evaluated] == ["HOME_OF"]
    assert found.image == "docker.io/lmsysorg/sglang:v0.5.10" and found.name == "sglang"
    assert (found.place.line, found.place.column) == (12, 6)
    assert at(found.env["SGLANG_B"]) == (8, 34)
    assert any("/etc/sglang.env" in text for text in dropped(found))


def test_a_quadlet_with_an_entrypoint() -> None:
    head = "[Container]\nImage=lmsysorg/sglang:v0.5.10\n"
    for more in (
        "Entrypoint=python3\nExec=-m sglang.launch_server --model-path m\n",
        "Exec=-m sglang.launch_server --model-path m\nEntrypoint=python3\nNetwork=host\n",
        "Exec=bash -c 'python3 -m sglang.launch_server --model-path m'\n",
        "Environment=A=1\nEnvironment=\nExec=sglang serve --model-path m",
    ):
        found = only(read_text(head + more, "x.container"))
        assert texts(found) == ["--model-path", "m"] and not env(found)
        assert found.image == "lmsysorg/sglang:v0.5.10"


def test_a_script_that_writes_a_quadlet() -> None:
    text = f"export OUT=1\ncat > x.container <<'EOF'\n{QUADLET}EOF\n"
    assert "OUT" not in env(only(read_text(text, "x.sh")))
