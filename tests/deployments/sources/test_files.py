"""Which reader a file gets, commands given as words, and documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.core.errors import COMMAND_LINE, InputError
from speclaunch.deployments.sources.files import read_file, read_markdown, read_text, read_words
from tests.support.deployments.sources.helpers import (
    SERVER,
    at,
    dropped,
    env,
    lint_text,
    only,
    texts,
)
from tests.support.lint_report import collect

COMPOSE = "services:\n  a:\n    command: sglang serve --tp 2\n"
POD = "# a pod\n\napiVersion: v1\nkind: Pod\nspec: {containers: [{command: [sglang, serve, --tp, '2']}]}\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", f"{SERVER} --tp 2\n"),
        ("run", f"#!/usr/bin/env bash\n{SERVER} --tp 2\n"),
        ("job.slurm", f"#!/bin/bash\n#SBATCH -N 1\nsrun {SERVER} --tp 2\n"),
        ("notes.txt", f"{SERVER} --tp 2\n"),
        ("docker-compose.yml", COMPOSE),
        ("compose", COMPOSE),
        ("pod.yaml", POD),
        ("pod", POD),
        (
            "pod.json",
            '{"kind": "Pod", "spec": {"containers": [{"args": ["sglang", "serve", "--tp", "2"]}]}}',
        ),
        ("server.yaml", "tp-size: 2\n"),
        ("README.md", f"text\n\n```bash\n{SERVER} --tp 2\n```\n"),
    ],
)
def test_the_reader_is_chosen(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = only(read_file(path, "shown"))
    assert texts(found) == ["--tp-size" if name == "server.yaml" else "--tp", "2"]
    assert found.place.path == "shown"
    assert read_text(text.encode(), name) == read_text(text, name)


@pytest.mark.parametrize("name", ["a.py", "a.toml", "a.sh", "a.md", "a.yaml", "a.txt"])
def test_nothing_is_found_in_other_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("a: 1\n")
    assert read_file(path).invocations == ()
    assert read_file(path).problems == ()


def test_what_cannot_be_read(tmp_path: Path) -> None:
    large = tmp_path / "large.sh"
    with large.open("wb") as file:
        file.truncate((10 << 20) + 1)
    (tmp_path / "latin.sh").write_bytes(b"x \xe9")
    for path, message in [
        (large, "more than 10 MiB"),
        (tmp_path / "latin.sh", "is not UTF-8 text (byte 2)"),
        (tmp_path / "none.sh", "no such file"),
        (tmp_path, "is a directory"),
    ]:
        with pytest.raises(InputError, match=message.replace("(", r"\(").replace(")", r"\)")):
            read_file(path)


def test_words_of_a_command_line() -> None:
    argv = [
        "A=1",
        "env",
        "-u",
        "B",
        "C=2 3",
        "python3",
        "-m",
        "sglang.launch_server",
        "--x",
        "a b",
        "",
        "it's",
    ]
    found = only(read_words(argv))
    assert texts(found) == ["--x", "a b", "", "it's"]
    assert env(found) == {"A": "1", "C": "2 3"}
    assert dropped(found) == ["-u B"]
    place = found.words[1].place
    assert (place.path, place.text) == (COMMAND_LINE, "'a b'")
    assert at(found.words[0]) == (1, 54)
    assert str(found.words[0].place) == "command line: --x"


def test_words_that_hold_a_script() -> None:
    found = only(
        read_words(
            ["docker", "run", "-e", "A=1", "img", "bash", "-c", "sglang serve --tp 2 --x $A"]
        )
    )
    assert texts(found) == ["--tp", "2", "--x", "1"]
    assert env(found) == {"A": "1"}
    assert read_words(["ls", "-l"]).invocations == ()
    assert read_words([]).invocations == ()
    with pytest.raises(InputError):
        read_words(["a\0b"])


def test_documents() -> None:
    text = f"""\
# Title with ``` in it

1. Start:

   ```bash Command theme={{null}}
   {SERVER} \\
     --tp 2
   ```

```console
$ {SERVER} --tp 4
INFO ready
(venv) $ sglang serve --tp 8
```

```python
"{SERVER} --tp 16"
```

~~~~
{SERVER} --tp 32
~~~~

> ```sh
> {SERVER} \\
>   --tp 64
> ```

```bash
{SERVER} --quote '
```

```
{SERVER} --tp 128
"""
    reading = read_markdown(text, "x.md")
    assert [texts(one) for one in reading.invocations] == [
        ["--tp", "2"], ["--tp", "4"], ["--tp", "8"], ["--tp", "32"], ["--tp", "64"], ["--tp", "128"],
    ]  # fmt: skip
    assert [at(one.words[0]) for one in reading.invocations] == [
        (7, 6), (11, 35), (13, 23), (21, 33), (26, 5), (34, 33),
    ]  # fmt: skip
    (problem,) = reading.unread
    assert problem.place is not None
    assert problem.place.line == 30


def test_a_list_of_nix_ends_with_its_bracket() -> None:
    text = 'cmd = [ "python3" "-m" "sglang.launch_server" "--model-path" "org/m" ];\n'
    assert texts(only(read_text(text, "x.nix"))) == ["*", "--model-path", "org/m"]


def test_lines_of_json_are_data() -> None:
    assert not read_text('{"cmd": "sglang serve m --tp 2"}\n', "x.jsonl").invocations


def test_a_nix_expression_is_read_where_it_holds_a_script(tmp_path: Path) -> None:
    """A list of words is none: nothing is said of it but that it was not read."""
    script = "{ x }: { script = ''\n  ${x}/bin/python -m sglang.launch_server --tp 2\n''; }\n"
    listed = '{ x }: { e = [ "python" "-m" "sglang.launch_server"\n  "--tp" "2" ]; }\n'
    found = only(read_text(script, "x.nix"))
    assert [word.text for word in found.words if word.evaluated] == ["--tp", "2"]
    assert not lint_text(script, "x.nix", tmp_path)
    (tmp_path / "y.nix").write_text(listed)
    (collected,) = collect([str(tmp_path / "y.nix")])
    assert collected.not_read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("export SGLANG_X=1\nsglang serve m --port $SGLANG_X\n", True),
        ('export SGLANG_X=1\nsglang serve m --port "${SGLANG_X:-2}"\n', True),
        ("export SGLANG_X=1\nexport SGLANG_X\nsglang serve m\n", False),
        ("export SGLANG_X=${SGLANG_X:-1}\nsglang serve m\n", False),
        (": ${SGLANG_X:=1}\nexport SGLANG_X\nsglang serve m\n", False),
        ("docker run -e SGLANG_X=$SGLANG_X i sglang serve m\n", False),
        ("export SGLANG_XY=1\nsglang serve m --port $SGLANG_X$SGL_Y\n", True),
    ],
)
def test_the_variables_that_a_file_reads_itself(text: str, read: bool) -> None:
    (found,) = read_text(text, "run.sh").invocations
    assert ("SGLANG_X" in found.read_variables) is read
    assert "SGLANG_XY" not in found.read_variables
