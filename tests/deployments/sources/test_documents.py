"""Commands in documents: fences of any kind, indented text, HTML, sentences, notebooks."""

from __future__ import annotations

import contextlib
import json
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.core.errors import InputError
from speclaunch.deployments.sources.files import read_markdown, read_text
from speclaunch.deployments.sources.interface import Invocation
from tests.support.deployments.sources.helpers import SERVER, at, only, slices, texts
from tests.support.loops import over, rows

COMMAND = f"{SERVER} --model-path a/b --tp 2"
WORDS = ["--model-path", "a/b", "--tp", "2"]


def doc(text: str, name: str = "x.md") -> Invocation:
    return only(read_text(text, name))


FORMS = {
    "fence": f"```bash\n{COMMAND}\n```\n",
    "fence with a title": f'```bash title="run"\n{COMMAND}\n```\n',
    "fence without a language": f"~~~\n{COMMAND}\n~~~\n",
    "session": f"```console\n$ {COMMAND}\nINFO ready\n```\n",
    "MyST": f"```{{code-block}} shell\n{COMMAND}\n```\n",
    "fence that is never closed": f"```sh\n{COMMAND}\n",
    "fence in a list": f"1. do\n\n   ```bash\n   {COMMAND}\n   ```\n",
    "fence in a quotation": f"> ```bash\n> {COMMAND}\n> ```\n",
    "line": f"Run this:\n\n{COMMAND}\n\nand wait.\n",
    "prompt": f"$ {COMMAND}\n",
    "label": f"Launch command: {COMMAND}\n",
    "list": f"- {COMMAND}\n",
    "indented": f"Run this:\n\n    {COMMAND}\n",
    "inline": f"Start it with `{COMMAND}`, and wait.\n",
    "inline over two lines": f"Start it with\n`{COMMAND}\n`, and wait.\n",
    "two backticks": f"Start it with ``{COMMAND}``.\n",
    "table": f"| what | how |\n|---|---|\n| it | `{COMMAND}` |\n",
    "pre": f"<details><summary>x</summary>\n<pre><code>{COMMAND}\n</code></pre></details>\n",
    "code": f"<p>Run <code>{COMMAND}</code>.</p>\n",
    "below a log": f"[2025] server_args=ServerArgs(model_path='x', tp_size=1)\n{COMMAND}\n",
}


@rows("form", FORMS)
def test_each_form_of_a_command(form: str) -> None:
    text = FORMS[form]
    found = doc(text)
    assert texts(found) == WORDS
    assert slices(text, found) == WORDS


@over(
    [
        ("python", f"{COMMAND}\n"),
        ("python", f"# start it\n\n{COMMAND}\n"),
        ("python", f"pip install sglang\nexport A=1\n$ {COMMAND}\n"),
        ("javascript", f"#start it\n{COMMAND}\n"),
        ("python", f'import os\n"""\n{COMMAND}\n"""\n'),
        ("rust", f"fn main() {{\n// {COMMAND}\n}}\n"),
        ("shellscript", f"python -m venv env\n{COMMAND}\n"),
    ]
)
def test_a_shell_block_marked_as_another_language(case: tuple[str, str]) -> None:
    language, code = case
    is_shell = "import" not in code and "fn" not in code
    found = read_markdown(f"```{language}\n{code}```\n", "x.md").invocations
    assert [texts(command) for command in found] == [WORDS] * is_shell


def test_a_command_in_the_text_of_a_notebook() -> None:
    lines = [
        "Start the server:\n",
        "```bash\n",
        f"{SERVER} --model-path a/b \\\n",
        " --tp 2\n",
        "```",
    ]
    cells = [{"cell_type": "markdown", "source": lines}, {"cell_type": "raw", "source": lines}]
    text = json.dumps({"cells": [*cells, {"cell_type": "markdown", "source": "sglang serve it"}]})
    found = doc(text, "x.ipynb")
    assert texts(found) == WORDS
    assert slices(text, found) == WORDS


def test_a_program_in_a_fence_for_scripts() -> None:
    program = (
        'import os\nfrom sglang.utils import launch_server_cmd\n\nmodel = "a/b"\n'
        f'cmd = (\n    f"{SERVER} "\n    f"--model-path {{model}} "\n    f"--tp 2"\n)\n'
        "launch_server_cmd(cmd, port=8000)\n"
    )
    for language in ("bash", "sh", "", "text"):
        assert texts(doc(f"```{language}\n{program}```\n")) == WORDS, language
    script = f"```bash\nimport x.png\n{COMMAND}\n```\n"  # ImageMagick's `import`
    assert texts(doc(script)) == WORDS


def test_continued_lines_and_variables_above_belong_to_a_line() -> None:
    text = (
        f"text\n\nMODEL=a/b\nexport TP=2\n{SERVER} --model-path $MODEL \\\n  --tp $TP\nmore text\n"
    )
    found = doc(text)
    assert texts(found) == WORDS
    assert [at(word) for word in found.words] == [(5, 33), (3, 7), (6, 3), (4, 11)]


def test_a_container_in_prose() -> None:
    found = doc(f"> docker run --gpus all lmsysorg/sglang:v0.5.9 \\\n>  {COMMAND}\n")
    assert texts(found) == WORDS
    assert found.image == "lmsysorg/sglang:v0.5.9"


@rows(
    "text",
    [
        f"{SERVER} --model-path a/b starts the server.\n",
        f"Use `{SERVER}`, `sglang serve` or `{SERVER} --help`.\n",
        f"`{SERVER} --tp 2` sets the size.\n",
        "`sglang serve` takes the same arguments.\n",
        "sglang serve is a command.\n",
        f"[INFO] Launching {COMMAND}\n",
        f"server_args=ServerArgs(model_path='a', x='{COMMAND}')\n",
        "root 12 0.0 python3 -m sglang.launch_server --model a\n",
        f"```python\nx = 1  # {COMMAND}\n```\n",
        f"```diff\n+{COMMAND}\n```\n",
        f"# {COMMAND}\n",
        "pass it to `sglang serve --model-path`.\n",
        "```\nuser\n  ├─→ sglang serve (30010)\n```\n",
        "```text\npython/sglang/launch_server.py\npython/sglang/srt/server_args.py\n```\n",
        '```yaml\nmainContainer:\n  args:\n    - "python3"\n    - "-m"\n    - "dynamo.sglang"\n    # more\n```\n',
        "```\nrollout:\n--sglang-mem-fraction-static: memory for the engine\n```\n",
    ],
)
def test_what_only_mentions_a_server_is_not_a_command(text: str) -> None:
    reading = read_text(text, "x.md")
    assert not reading.invocations
    assert not reading.problems
    assert not reading.unread


def test_a_command_in_a_drawn_box() -> None:
    assert texts(doc(f"```\n┌─────┐\n│ {SERVER} --tp 2 │\n```\n")) == ["--tp", "2"]


def test_an_ellipsis_stands_for_the_model_of_a_sentence() -> None:
    found = doc(f"Add it: `{SERVER} ... --tp 2`\n")
    assert [(word.text, word.evaluated) for word in found.words][1:] == [
        ("--tp", True),
        ("2", True),
    ]


COMPOSE = f"services:\n  s:\n    image: lmsysorg/sglang:v0.5.9\n    command: {COMMAND}\n"
POD = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: s\n"
    '    command: ["python3", "-m", "sglang.launch_server"]\n    args: [--model-path, a/b, --tp, "2"]\n'
)
DOCKER = f"FROM lmsysorg/sglang:v0.5.9\nENV TP=2\nCMD {SERVER} --model-path a/b --tp $TP\n"


@rows(
    "language, text, indent",
    [*product(["yaml", "yml", "YAML", "", "docker-compose"], [COMPOSE, POD], ["", "   ", "> "])],
)
def test_fenced_manifests(language: str, text: str, indent: str) -> None:
    inside = "".join(f"{indent}{line}\n" for line in f"```{language}\n{text}```".split("\n"))
    whole = f"# Title\n\n{inside}\nend\n"
    found = doc(whole)
    assert texts(found) == WORDS
    assert slices(whole, found) == WORDS


@rows("language", ["dockerfile", "Dockerfile", "docker", ""])
def test_fenced_dockerfiles(language: str) -> None:
    text = f"text\n\n  ```{language}\n  {DOCKER.replace(chr(10), chr(10) + '  ')}```\n"
    found = doc(text)
    assert texts(found) == WORDS
    assert [at(word) for word in found.words][2:] == [(6, 56), (5, 10)]
    assert found.image == "lmsysorg/sglang:v0.5.9"


def test_a_config_in_a_document_is_none_of_a_file() -> None:
    assert not read_text("```yaml\nmodel-path: a/b\ntp-size: 2\n```\n", "x.md").invocations


def test_a_manifest_that_is_not_yaml_is_told() -> None:
    reading = read_text(f"```yaml\na: [\ncommand: {COMMAND}\n```\n", "x.md")
    assert not reading.unread
    assert [problem.place and problem.place.line for problem in reading.problems] == [4]


@pytest.mark.parametrize("directive", ["code-block:: bash", "code:: sh", "prompt:: bash $"])
def test_restructured_text(directive: str) -> None:
    text = f"Title\n=====\n\n.. {directive}\n   :caption: x\n\n   TP=2\n   {SERVER} --model-path a/b --tp $TP\n\nend\n"
    found = doc(text, "x.rst")
    assert texts(found) == WORDS
    assert at(found.words[3]) == (7, 7)
    assert texts(doc(f"Run ``{COMMAND}``.\n", "x.rst")) == WORDS
    assert texts(doc(f"Run::\n\n    {COMMAND}\n", "x.rst")) == WORDS


def test_entities_and_tags_of_html() -> None:
    text = f"<pre>{SERVER} \\\n  --model-path &quot;a/b&quot; <b>--tp</b> 2 &amp;\n</pre>\n"
    found = doc(text, "x.html")
    assert texts(found) == WORDS
    assert [at(word) for word in found.words] == [(2, 3), (2, 16), (2, 35), (2, 44)]


def notebook(*cells: str | list[str]) -> str:
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells]
    return json.dumps({"cells": made, "nbformat": 4}, indent=1)


def test_notebooks() -> None:
    text = notebook(
        [f"!{SERVER} \\\n", "  --model-path a/b --tp 2\n"],
        f"%%bash\nTP=2\n{SERVER} --model-path a/b --tp $TP",
        ["p = launch_server_cmd(\n", '    """\n', f"{COMMAND}\n", '"""\n', ")"],
        f"# {COMMAND}\nprint('{SERVER}')",
    )
    found = read_text(text, "x.ipynb").invocations
    assert [texts(one) for one in found] == [WORDS] * 3
    word = found[0].words[0].place
    assert text.split("\n")[word.line - 1][word.column - 1 :].startswith("--model-path a/b")


def test_strings_of_python_in_notebooks() -> None:
    cell = f'x = f"""{SERVER} \\\\\n --model {{args["m"]}} \\\n --tp {{tp}} --x {{{{"a": 1}}}}"""'
    (found,) = read_text(notebook(cell), "x.ipynb").invocations
    assert texts(found)[1:] == ["--model", '{args["m"]}', "--tp", "{tp}", "--x", "{a:", "1}"]
    assert [word.evaluated for word in found.words[1:5]] == [True, False, True, False]


def test_a_cell_is_a_program() -> None:
    cell = (
        "%matplotlib inline\nimport sglang as sgl\n"
        'def show(m, tp=2):\n    x = f"{COMMAND} --port {m}"\n    return x\n'
        "y = show(7)\ne = sgl.Engine(model_path='a/b', tp_size=4)\n"
    ).replace("{COMMAND}", f"{SERVER} --model a/b --tp {{tp}}")
    text = notebook(cell.splitlines(keepends=True))
    started, engine = read_text(text, "x.ipynb").invocations
    assert texts(started)[1:] == ["--model", "a/b", "--tp", "2", "--port", "7"]
    assert texts(engine) == ["--model-path", "a/b", "--tp-size", "4"]
    place = engine.words[1].place
    assert text.split("\n")[place.line - 1][place.column - 1 :].startswith("a/b'")


def test_a_notebook_that_is_not_json_is_told() -> None:
    with pytest.raises(InputError):
        read_text("{", "x.ipynb")


def test_a_plain_text_is_a_document_and_a_script_is_not() -> None:
    assert texts(doc(f"I ran\n{COMMAND}\nand it's broken\n", "issue.txt")) == WORDS
    assert texts(doc(f"#!/bin/sh\nT=2\ntrue\n{SERVER} --tp $T\n", "run.txt")) == ["--tp", "2"]


def test_a_plain_text_without_a_command_may_be_a_script() -> None:
    text = "OPTS=(\n  --sglang-mem-fraction-static 0.7\n)\npython train.py ${OPTS[@]}\n"
    assert texts(doc(text, "run.sh.txt")) == ["--mem-fraction-static", "0.7"]


def test_a_block_without_a_server_may_be_unreadable() -> None:
    reading = read_text(f"```bash\n./sglang/run (see below\n```\n\n`{COMMAND}`\n", "x.md")
    assert not reading.unread
    assert not reading.problems
    assert read_text(f"```bash\n{SERVER} --tp 2 'x\n```\n", "x.md").unread


def test_a_readme_of_a_chart_is_no_template() -> None:
    assert texts(doc(f"`{{{{ .Values.x }}}}`\n\n```bash\n{COMMAND}\n```\n")) == WORDS


PIECES = st.sampled_from(
    ["```", "~~~", "````", "bash", "yaml", "dockerfile", "\n", "\n\n", "    ", "> ", "- ", "$ ", "`", "``",
     "<pre>", "</pre>", "<code>", "&lt;", ".. code-block:: bash\n", "   ", COMMAND, SERVER, "services:\n", "FROM a\n",
     "CMD ", "docker run x", "\\", "\\\n", "'", '"', "A=1\n", "{{ x }}", "...", "text "]
)  # fmt: skip


@pytest.mark.thorough
@given(st.lists(PIECES, max_size=25))
def test_any_document_is_read(pieces: list[str]) -> None:
    for name in ("x.md", "x.rst", "x.ipynb"):
        with contextlib.suppress(InputError):
            read_text("".join(pieces), name)


@pytest.mark.thorough
@given(st.text(alphabet="ab-*_#[]()!.,\n", max_size=200), st.text(alphabet="ab-*#.\n", max_size=99))
def test_a_fenced_command_is_found_in_any_document(before: str, after: str) -> None:
    text = f"{before}\n\n```bash\n{COMMAND}\n```\n\n{after}"
    assert WORDS in [texts(one) for one in read_text(text, "x.md").invocations]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        "```" * 300_000,
        "```\n" * 200_000 + COMMAND,
        "<pre>sglang\n" * 100_000,
        "<code>" * 200_000 + "sglang",
        "`sglang " * 150_000,
        "sudo " + "a" * 1_000_000 + " sglang serve",
        "sudo a/" * 200_000 + " sglang serve",
        "A=b " * 300_000 + "sglang",
        ".. code-block:: bash\n" * 50_000,
        "\n".join(f"```yaml\na: sglang serve {n}\n```" for n in range(1_000)),
        "sglang \\\n" * 120_000,
        "> " * 500_000 + COMMAND,
        "&amp;" * 200_000 + "<pre>sglang" + "&amp;" * 200_000 + "</pre>",
        f"```\n{chr(10) * 60}{COMMAND}\n```",
        f"{COMMAND}\n" + "what the server says  \n" * 40,
    ],
    ids=range(15),
)
def test_hostile_documents_are_answered_soon(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(InputError):
        read_text(text, "x.md")
    assert time.process_time() - start < 10


@rows(
    "line",
    [
        f"The command is {SERVER} --model-path m --tp 2",
        f"I run: CUDA_VISIBLE_DEVICES=0,1 {SERVER} --model-path m --tp 2",
        f"(venv) user@host:~/x$ {SERVER} --model-path m --tp 2",
        f"root@abc123:/sgl-workspace# {SERVER} --model-path m --tp 2",
        f"```{{eval-rst}}\n.. tabs::\n\n   .. code-block:: bash\n\n      {SERVER} --model-path m --tp 2\n\n```",
        f"Title\n~~~~~\n\n```\n{SERVER} --model-path m --tp 2\n```",
        f"- Start\n  `{SERVER} --model-path m\n   --tp 2` (in a container).",
        f"```\nuser@host:~$ {SERVER} --model-path m --tp 2\n```",
    ],
)
def test_commands_that_people_paste(line: str) -> None:
    found = only(read_markdown(f"# x\n\n{line}\n\nDon't.\n", "x.md"))
    assert texts(found) == ["--model-path", "m", "--tp", "2"]


@rows(
    "line",
    [
        f"I run {SERVER} --model-path m --tp 2 and it fails",
        f"INFO: running {SERVER} --model-path m --tp 2",
        f"2026-01-01 run {SERVER} --model-path m --tp 2",
        f"`{SERVER} --model-path m\n\n --tp 2`",
        f"`a` `{SERVER} --tp 2\n--dp 2` b",
    ],
)
def test_sentences_and_logs_are_no_commands(line: str) -> None:
    assert not read_markdown(f"{line}\n", "x.md").invocations


def test_programs_in_documents() -> None:
    program = "import sglang as sgl\nllm = sgl.Engine(model_path='m', tp_size=2)\n"
    indented = program.replace("import", "    import").replace("llm", "    llm")
    for text, line, column in (
        (f"```python\n{program}```\n", 3, 30),
        (f".. code-block:: python\n\n{indented}\n", 4, 34),
    ):
        found = only(read_markdown(text, "x.rst"))
        assert texts(found) == ["--model-path", "m", "--tp-size", "2"]
        assert at(found.words[1]) == (line, column)
    assert not read_markdown("```python\nsgl.Engine(model_path=\n```\n", "x.md").invocations


def test_an_engine_in_a_notebook() -> None:
    cells = ["import sglang as sgl\n", "engine = sgl.Engine(model_path='m', tp_size=2)\n"]
    found = only(read_text(notebook(*cells), "x.ipynb"))
    assert texts(found) == ["--model-path", "m", "--tp-size", "2"]


@pytest.mark.parametrize("language", ["ini", "systemd"])
def test_a_fenced_unit_of_systemd(language: str) -> None:
    text = f"```{language}\nExecStart=/opt/bin/python -m sglang.launch_server \\\n  --tp 2\n```\n"
    assert texts(only(read_markdown(text, "x.md"))) == ["--tp", "2"]


IMAGE = "lmsysorg/sglang:v0.5.9"
OPENED = f"```bash\ndocker run --gpus all -it {IMAGE} bash\n```\n"
OTHER = OPENED.replace("0.5.9", "0.5.3")
RUN = f"```bash\n{COMMAND}\n```\n"
DETACHED = f"```bash\ndocker run -d --name s {IMAGE} tail -f /dev/null\n```\n"
ENTER = "```bash\ndocker exec -it s bash\n```\n"
PULLED = f"```\ndocker pull {IMAGE}\n```\n"
EARLIER_IMAGES = {
    "the shell of the last container": (OPENED + RUN, IMAGE),
    "in one block": (f"```bash\ndocker run -it {IMAGE} /bin/bash\n{COMMAND}\n```\n", IMAGE),
    "a session": (f"```console\n$ docker run -it {IMAGE} bash\n```\n{RUN}", IMAGE),
    "no command": (OPENED.replace(" bash\n", "\n") + RUN, IMAGE),
    "an entrypoint": (OPENED.replace("-it", "-it --entrypoint bash").replace(" bash\n", "\n") + RUN, IMAGE),
    "a container that waits": (DETACHED + RUN, IMAGE),
    "by its name": (DETACHED + ENTER + RUN, IMAGE),
    "the name of another": (DETACHED + OTHER + ENTER + RUN, None),
    "by the pulled image": (PULLED + ENTER + RUN, IMAGE),
    "one of two pulled images": (PULLED + PULLED.replace("9\n", "8\n") + ENTER + RUN, None),
    "only pulled": (PULLED + RUN, None),
    "a container that serves": (OPENED.replace("bash\n", "nginx\n") + RUN, None),
    "a container that ends": (OPENED.replace("bash\n", "bash -c 'nvidia-smi'\n") + RUN, None),
    "detached without a command": (OPENED.replace("-it", "-d").replace(" bash\n", "\n") + RUN, None),
    "no release": (OPENED.replace("v0.5.9", "latest") + RUN, None),
    "another section": (f"# A\n## B\n{OPENED}## 4.2.2 C\n{RUN}", IMAGE),
    "two images": (OTHER + OPENED + RUN, None),
    "two sections": (f"## A\n{OTHER}{RUN}## B\n{OPENED}### C\n{RUN}", IMAGE),
    "a section after two images": (f"## A\n{OTHER}{RUN}## B\n{OPENED}{RUN}## C\n{RUN}", None),
    "tabs": (f"**A**\n\n{OTHER}\n**B**\n\n{OPENED}\n**Run**\n\n{RUN}", None),
    "a nearer container": (OTHER + RUN + OPENED + RUN, IMAGE),
    "its own container": (OTHER + f"```\ndocker run {IMAGE} {COMMAND}\n```\n", IMAGE),
    "another installation": (f"{OPENED}```\npip install 'sglang==0.5.3'\n```\n{RUN}", None),
    "an installation in a sentence": (f"{OPENED}Then `pip install -U sglang`.\n{RUN}", None),
    "another place": (f"{OPENED}```\nexit\n```\n{RUN}", None),
    "another host": (f"{OPENED}```\nssh b '{COMMAND}'\n```\n", None),
    "another release in the text": (f"# A\n{OPENED}# B\n- SGLang: 0.5.7\n### C\n{RUN}", None),
    "a release above both": (f"# A\n- SGLang: v0.5.9\n# B\n{OPENED}### C\n{RUN}", IMAGE),
    "a section without containers": (f"# A\n{OPENED}# Without Docker\n{RUN}", None),
}  # fmt: skip


@rows("case", EARLIER_IMAGES)
def test_the_shell_of_a_container_holds_for_later_blocks(case: str) -> None:
    text, image = EARLIER_IMAGES[case]
    assert read_text(text, "x.md").invocations[-1].image == image


SET = "```bash\nexport SGLANG_X=1\nexport TP=2\n```\n"
USE = "```bash\n" + COMMAND.replace("--tp 2", "--tp $TP") + "\n```\n"
SET_3 = SET.replace("TP=2", "TP=3")
EARLIER_VARIABLES = {
    "in the section": (SET + USE, "2", True),
    "in a section above": (f"# A\n{SET}## B\n{USE}", "2", True),
    "in another section": (f"## A\n{SET}## B\n{USE}", "2", False),
    "a variant": (f"# A\n{RUN}{SET}{USE}", "2", False),
    "in a server's block": (USE.replace("\npy", "\nexport TP=2 SGLANG_X=1\npy") + USE, "2", False),
    "the nearest": (f"# A\n{SET_3}{USE}## B\n{SET}{USE}", "2", True),
    "several above": (SET_3 + SET + USE, "$TP", True),
    "several in other sections": (f"## A\n{SET_3}## B\n{SET}## C\n{USE}", "$TP", False),
    "another below": (f"## A\n{SET}## B\n{USE}{SET_3}", "$TP", False),
    "a placeholder": (SET.replace("=2", "=<size>") + USE, "<size>", True),
    "not exported": (SET.replace("export ", "") + USE, "2", False),
    "only a variable": ("```bash\nTP=2\n```\n" + USE, "2", False),
    "in the file of a script": ("```bash\n#!/bin/sh\nTP=2\n```\n" + USE, "$TP", False),
    "in a text": ("```\nTP=2\n```\n" + USE, "$TP", False),
    "not exported, and another below": (
        f"## A\n```sh\nTP=2\n```\n## B\n{USE}{SET_3}",
        "$TP",
        False,
    ),
    "removed": (f"{SET}```bash\nunset SGLANG_X\n```\n{USE}", "2", False),
    "after an installation": (f"```\npip install sglang\n```\n{SET}{USE}", "2", True),
    "in a container": (SET + OPENED + USE, "$TP", False),
    "in inline code": (f"{SET}Run `{SERVER} --model m --tp $TP`.\n", "2", True),
    "in another shell": (f"{SET}```\nssh b\n```\n{USE}", "$TP", False),
}


@rows("case", EARLIER_VARIABLES)
def test_exported_variables_hold_for_later_blocks(case: str) -> None:
    text, size, is_set = EARLIER_VARIABLES[case]
    found = read_text(text, "x.md").invocations[-1]
    words = texts(found)
    word = found.words[words.index("--tp") + 1]
    assert not word.evaluated or bool(word.why) == ("export TP" not in text)
    assert (words[words.index("--tp") + 1], "SGLANG_X" in found.env) == (size, is_set)


@rows("fence", ["json", "jsonc", ""])
def test_launch_json_of_vs_code(fence: str) -> None:
    text = """{
  // Debug
  "configurations": [{"module": "sglang.launch_server", "args": ["--model-path", "org/m"],}],
}"""
    found = only(read_markdown(f"# Debug\n```{fence}\n{text}\n```\n", "x.md"))
    assert texts(found) == ["--model-path", "org/m"]
    assert found.words[1].place.line == 5
    short = text.replace('"args"', "... ,")
    reading = read_markdown(f"```{fence}\n{short}\n```\n", "x.md")
    assert not (reading.invocations or reading.problems)
    group = read_markdown("```\n{\n  sglang serve m --tp 2\n}\n```\n", "x.md")
    assert texts(only(group)) == ["m", "--tp", "2"]
