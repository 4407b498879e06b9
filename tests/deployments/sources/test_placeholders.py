"""Placeholders, ellipses and pasted links: values in a document, something else to a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclaunch.deployments.sources.files import read_markdown, read_shell, read_text, read_yaml
from speclaunch.deployments.sources.interface import Word
from tests.support.deployments.sources.helpers import SERVER, only, shell, texts
from tests.support.loops import rows

BASH = shutil.which("bash")
PASTED = (
    f"{SERVER} --model <target-model-path> \\\n"
    "  --speculative-algorithm EAGLE3 \\\n"
    "  --speculative-draft-model-path <draft> \\\n"
    "  --speculative-num-steps 3\n"
)
WORDS = [
    "--model", "<target-model-path>", "--speculative-algorithm", "EAGLE3",
    "--speculative-draft-model-path", "<draft>", "--speculative-num-steps", "3",
]  # fmt: skip


def open_words(words: tuple[Word, ...]) -> list[str]:
    """Those that stand for a value of the reader's own."""
    assert all(word.placeholder != word.evaluated for word in words)
    return [word.text for word in words if word.placeholder]


def fenced(command: str) -> str:
    return f"Run this:\n\n```bash\n{command}\n```\n"


def test_a_document_has_values_to_fill_in_and_no_redirections() -> None:
    found = only(read_markdown(fenced(PASTED), "x.md"))
    assert texts(found) == WORDS
    assert open_words(found.words) == ["<target-model-path>", "<draft>"]
    assert not found.dropped
    assert not read_markdown(fenced(PASTED), "x.md").misread


def test_a_name_in_capitals_that_begins_with_your_is_to_be_filled_in() -> None:
    found = only(read_markdown(fenced(f"{SERVER} --model x/YOUR_MODEL --port YOUR_PORT"), "x.md"))
    assert open_words(found.words) == ["x/YOUR_MODEL", "YOUR_PORT"]
    lower = f"{SERVER} --model path/to/your-model --port your_port --host yours_x"
    found = only(read_markdown(fenced(lower), "x.md"))
    assert open_words(found.words) == ["path/to/your-model", "your_port"]
    assert not open_words(shell(f"{lower}\n").words)
    assert not open_words(shell(f"{SERVER} --model MY_YOUR_MODEL --port $YOUR_PORT\n").words[:3])


def test_a_script_is_told_that_its_shell_redirects() -> None:
    reading = read_shell(PASTED, "x.sh")
    (found,) = reading.invocations
    assert texts(found) == WORDS  # what its writer meant
    assert open_words(found.words) == ["<target-model-path>", "<draft>"]
    assert [(p.place.line, p.place.column) for p in reading.misread if p.place] == [
        (1, 41),
        (3, 34),
    ]
    assert "redirects from the file `draft`" in reading.misread[1].message


@rows(
    "text, words",
    [
        ("--tp <number of GPUs> --dp 2", ["<number of GPUs>"]),
        ("--model=<org>/<model> --dp 2", ["--model=<org>/<model>"]),
        ("--model /models/<name> --dp 2", ["/models/<name>"]),
        ("--model {{ model }} --port {{port}}", ["{{ model }}", "{{port}}"]),
        ('--model "{{ model }}" --port 1', ["{{ model }}"]),
        ("--model '<your model>' --port 1", ["<your model>"]),
        ("--model [model] --tp [number of GPUs]", ["[model]", "[number of GPUs]"]),
        ("--model {target model} --tp {gpus}", ["{target model}", "{gpus}"]),
        ("--model /path/to/... --tp …", ["/path/to/...", "…"]),
        ("--model <模型> --tp 2", ["<模型>"]),
        ("--model m --cuda-graph-bs 1 2 ... 64", ["..."]),
        ("--model m --port __PORT__ --revision x@TAG@", ["__PORT__"]),
        ("--model /opt/@NAME@/m --tp __TP_SIZE__", ["/opt/@NAME@/m", "__TP_SIZE__"]),
        ("--model [Qwen/Qwen3-8B](https://huggingface.co/Qwen/Qwen3-8B) --tp 2", []),
    ],
)
def test_the_ways_of_writing_one(text: str, words: list[str]) -> None:
    found = only(read_markdown(fenced(f"{SERVER} {text}"), "x.md"))
    assert open_words(found.words) == words


def test_a_link_is_its_text() -> None:
    link = "[Qwen/Qwen3-8B](https://huggingface.co/Qwen/Qwen3-8B)"
    found = only(read_markdown(fenced(f"{SERVER} --model {link} --tp 2"), "x.md"))
    assert texts(found) == ["--model", "Qwen/Qwen3-8B", "--tp", "2"]
    reading = read_shell(f"{SERVER} --model {link} --tp 2\n", "x.sh")
    assert texts(reading.invocations[0]) == ["--model", "Qwen/Qwen3-8B", "--tp", "2"]
    assert "syntax error" in reading.misread[0].message


@pytest.mark.parametrize("name", ["run.sh.example", "run.sh.tpl", "run.template"])
def test_a_template_is_read_like_a_document(name: str) -> None:
    reading = read_text(PASTED, name)
    assert texts(reading.invocations[0]) == WORDS
    assert not reading.misread


def test_an_array_of_a_script_with_placeholders() -> None:
    script = f'A=(--model <model> --tp 2)\nM=<other>\n{SERVER} "${{A[@]}}" --tokenizer-path $M\n'
    reading = read_shell(script, "x.sh")
    assert not reading.unread
    assert open_words(reading.invocations[0].words) == ["<model>", "<other>"]
    assert len(reading.misread) == 2


@rows(
    "text",
    [
        "--model m < in.txt > out.txt",
        "--model m <in >out",
        "--model m <in>out",
        "--model m 2>&1 <in 1>out",
        "<in> out --model m",
    ],
)
def test_redirections_of_a_script_stay_what_they_are(text: str) -> None:
    reading = read_shell(f"{SERVER} {text}\n", "x.sh")
    (found,) = reading.invocations
    assert not reading.misread
    assert texts(found)[:2] == ["--model", "m"]
    assert all(word.evaluated for word in found.words)


@rows(
    "text",
    [
        """--model m --json-model-override-args '{"a": {"b": "<s>"}}'""",
        "--speculative-model '[ngram]'",
        "--cuda-graph-bs {1,2} --x {{a,b}}",
        "--model a__B__c --x __init__ --y user@HOST --z a@B@c",
        "--model ...",  # the shell passes it on
    ],
)
def test_what_only_looks_like_one(text: str) -> None:
    found = shell(f"{SERVER} {text}\n")
    assert all(word.evaluated for word in found.words)


def test_yaml_passes_words_on_and_a_placeholder_is_none() -> None:
    text = f"services:\n  a:\n    image: x\n    command: {SERVER} --model <your-model> --tp 2\n"
    found = only(read_yaml(text, "compose.yaml"))
    assert open_words(found.words) == ["<your-model>"]
    found = only(read_yaml("model-path: <your-model>\ntp-size: 2\n", "c.yaml"))
    assert open_words(found.words) == ["<your-model>"]


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("flag", ["--model <draft> --x y", "--model=<draft> --x y"])
def test_bash_does_redirect_there(flag: str, tmp_path: Path) -> None:
    """What SPL016 claims: a file is read, another is written, and the words move up."""
    assert BASH is not None
    (tmp_path / "draft").write_text("")
    script = f"python3() {{ printf '%s\\n' \"$@\" >&3; }}\n{SERVER} {flag} z 3>words\n"
    subprocess.run([BASH, "-c", script], cwd=tmp_path, check=True, env=dict(os.environ))
    assert "<draft>" not in (tmp_path / "words").read_text()
    assert (tmp_path / "--x").exists()
    assert read_shell(f"{SERVER} {flag} z\n", "x.sh").misread


name = st.text("abcXYZ01-_ ./模", min_size=1, max_size=8).filter(lambda t: t.strip() == t)
value = st.one_of(
    name.filter(lambda t: t[0].isalnum() and t[-1] != "." and "/" not in t).map(lambda t: f"<{t}>"),
    st.sampled_from(["{{ model }}", "[model]", "8", "org/m", "…"]),
)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=st.lists(value, min_size=1, max_size=4), gap=st.sampled_from([" ", " \\\n  "]))
def test_no_flag_of_a_document_ever_takes_another_ones_value(values: list[str], gap: str) -> None:
    words = [word for number, text in enumerate(values) for word in (f"--flag-{number}", text)]
    found = only(read_markdown(fenced(gap.join([SERVER, *words])), "x.md"))
    assert texts(found) == words
    assert not found.dropped
