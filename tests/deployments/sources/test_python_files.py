"""Python programs that start a server. Nothing in them is executed."""

from __future__ import annotations

import ast
import contextlib
import json
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.checks.edit.migrate_file import migrate_data
from speclaunch.core.errors import SpeclaunchError
from speclaunch.deployments.sources.deployment import to_deployment
from speclaunch.deployments.sources.effective_words import effective
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation, InvocationKind
from speclaunch.deployments.sources.python_files import read_python
from speclaunch.deployments.sources.python_strings import ProgramPositions
from speclaunch.deployments.sources.source_text import Document
from speclaunch.engine import load
from tests.support.deployments.sources.helpers import at, env, lint_text, only
from tests.support.lint_report import collect
from tests.support.loops import over, rows

HEAD = "import os, shlex, subprocess, sys\nimport sglang as sgl\n"


def read(text: str) -> Invocation:
    return only(read_python(HEAD + text, "x.py"))


def said(found: Invocation) -> str:
    """The words that are known, `?` for each that is not; without what may be added."""
    rest = [word for word in found.words if word.text != "*"]
    return " ".join(word.text if word.evaluated else "?" for word in rest)


@over(
    [
        ('"--tp", *extra', {"tp_size": "???"}),
        ('"--tp", *extra, b', {"tp_size": "???"}),
        ('"--cuda-graph-bs-decode", "1", *extra', {"cuda_graph_bs_decode": "???"}),
        ('"--trust-remote-code", *extra', {"trust_remote_code": True}),
        ('"--trust-remote-code", word', {"trust_remote_code": True}),
        ('"--trust-remote-code", *a, "b", "--tp", "2"', {"trust_remote_code": True, "tp_size": 2}),
    ]
)
def test_arguments_after_an_unknown_number_of_words(case: tuple[str, dict[str, object]]) -> None:
    """They may set the algorithm, and are never the value of a switch."""
    words, known = case
    draft = '"--speculative-draft-model-path", "d"'
    found = read(f'subprocess.run(["sglang", "serve", "m", {draft}, {words}])')
    imported = to_deployment(found, "x")
    args = {name: line.value for name, line in imported.args.items()}
    assert args == {"model_path": "m", "speculative_draft_model_path": "d"} | known
    assert not imported.problems
    assert effective(found, load("0.5.23")).elided


PROGRAM = """\
MODEL = "org/m"
TP = 8


def serve(port, fast=False):
    cmd = [
        sys.executable, "-m", "sglang.launch_server",
        "--model-path", MODEL,
        "--tp", str(TP),
        "--port", str(port),
    ]
    if fast:
        cmd += ["--speculative-algorithm", "EAGLE"]
    cmd.extend(["--mem-fraction-static", "0.8"])
    cmd.append("--trust-remote-code")
    subprocess.Popen(cmd)
"""


def test_a_list_that_grows() -> None:
    found = read(PROGRAM)
    assert said(found) == (
        "--model-path org/m --tp 8 --port ? --speculative-algorithm EAGLE "
        "--mem-fraction-static 0.8 --trust-remote-code"
    )
    assert [at(word) for word in found.words] == [
        *((10, 10), (3, 10), (11, 10), (4, 6), (12, 10), (12, 23)),
        *((15, 18), (15, 45), (16, 18), (16, 43), (17, 17)),
    ]
    conditions = {word.condition for word in found.words}
    assert conditions == {None, "only under the condition of line 14"}
    assert found.words[1].used_at is not None and found.words[1].used_at.line == 10
    assert found.place.line == 9


LIST = """\
def build(mode):
    cmd = ["sglang", "serve", "--model-path", "m", "--tp", "2"]
    {shown}
    return cmd
subprocess.run(build(x))
"""


@over(
    [
        "print(*cmd)",
        'print("Starting:", *cmd, sep=" ")',
        'logger.info(" ".join(["env", *cmd]))',
        'print("+ " + " ".join(["A=1"] + cmd))',
        'print(f"Command: {shlex.join(cmd)}")',
    ]
)
def test_a_command_that_the_program_also_prints(shown: str) -> None:
    assert said(read(LIST.format(shown=shown))) == "--model-path m --tp 2"


def test_arguments_after_an_early_return_depend_on_its_condition() -> None:
    shown = (
        'if mode == "base":\n        return cmd\n    cmd += ["--speculative-algorithm", "EAGLE"]'
    )
    found = read(LIST.format(shown=shown))
    assert said(found) == "--model-path m --tp 2 --speculative-algorithm EAGLE"
    by_condition = {word.text: word.condition for word in found.words}
    assert by_condition["--tp"] is None
    assert by_condition["EAGLE"] == "only under the condition of line 5"
    made = LIST.replace("cmd = [", "if bad:\n        return None\n    cmd = [")
    assert {word.condition for word in read(made.format(shown="cmd += ['--x', '1']")).words} == {
        None
    }


FRAGMENTS = """\
parts = []
parts.append(f"CUDA_VISIBLE_DEVICES={gpu}")
parts.append("python3 -m sglang.launch_server")
parts.append(f"--model-path {model}")
parts.append("--tp 2")
if fast:
    parts.append("--enable-metrics")
parts.extend(more)
cmd = " ".join(parts)
subprocess.run(cmd, shell=True)
"""


def test_a_text_that_a_program_joins_from_fragments() -> None:
    found = read(FRAGMENTS)
    assert said(found) == "--model-path ? --tp 2 ? ?"
    bash = 'cmd = ["bash", "-c", "sglang serve --model-path m"]\nx = " ".join(cmd)\nsubprocess.run(cmd)'
    assert said(read(bash)) == "--model-path m"


def test_unknown_arguments_may_set_the_algorithm(tmp_path: Path) -> None:
    draft = 'cmd = ["sglang", "serve", "m", "--speculative-draft-model-path", "d"]'
    for more, is_reported in (("", True), ("    cmd.extend(a['args'])\n", False)):
        text = f"{HEAD}def f(a):\n    {draft}\n{more}    subprocess.Popen(cmd)\n"
        found = lint_text(text, "x.py", tmp_path)
        assert ("SPL120" in {finding.code for finding in found}) == is_reported


def test_commands_in_nested_tables() -> None:
    found = read('T = {"m": {"cmd": {"a": "sglang serve --model-path {path} --tp 2"}}}')
    assert said(found) == "--model-path ? --tp 2"


TEXTS = [
    'subprocess.run("sglang serve --model-path m --tp 2", shell=True)',
    'subprocess.run(shlex.split("sglang serve --model-path m --tp 2"))',
    'subprocess.run("sglang serve --model-path m --tp 2".split())',
    'os.system("python3 -m sglang.launch_server --model-path m " "--tp 2")',
    'os.execvp("sglang", ["sglang", "serve", "--model-path", "m", "--tp", "2"])',
    'subprocess.run(["bash", "-c", "sglang serve --model-path m --tp 2"])',
    'subprocess.run(("sglang", "serve", *("--model-path", "m"), "--tp", str(2)))',
    'subprocess.run(["sglang", "serve"] + ["--model-path", "m"] + ["--tp", "2"])',
    'subprocess.run(" ".join(["sglang", "serve", "--model-path m", "--tp", "2"]), shell=True)',
    'subprocess.run(" ".join(["sglang", "serve", "--model-path", "m", "--tp", "2"]) + " || exit 1", shell=True)',
    'c = ["sglang", "serve", "--model-path", "m"]\nos.system(" ".join(c) + " --tp 2 > x.log 2>&1 &")',
    'launch_server_cmd("""\npython -m sglang.launch_server --model-path m \\\n --tp 2\n""")',
    'launch_server_cmd("""\n sglang serve --model-path m\n  --tp 2\n """)',
    'c = "sglang serve --model-path m"\nc += " --tp 2"\nsubprocess.run(c, shell=True)',
    'm = "m"\nsubprocess.run(f"sglang serve --model-path {m} --tp {2}", shell=True)',
    'sgl.Engine(model_path="m", tp=2)',
    'from sglang.srt.ray.engine import RayEngine\nRayEngine(model_path="m", tp=2)',
    'from sglang.srt.server_args import ServerArgs as A\nA(model_path="m", tp=2)',
    'kw = dict(model_path="m")\nkw["tp"] = 2\nsgl.Engine(**kw)',
    'popen_launch_server("m", "url", timeout=9, other_args=["--tp", 2])',
    'prepare_server_args(["--model-path", "m", "--tp", "2"])',
    'build_sglang_chute(model_name="m", engine_args="--tp 2")',
    'build_sglang_chute(model_name="m", engine_args=("--tp " "2"))',
    'if __name__ == "__main__":\n    os.system("sglang serve --model-path m --tp 2")',
    'class A:\n    def f(self):\n        os.system("sglang serve --model-path m --tp 2")',
    'class A:\n    m = "m"\n    def f(self):\n        os.system(f"sglang serve --model-path {self.m} --tp 2")',
    'async def f():\n    await x.create_subprocess_exec("sglang", "serve", "--model-path", "m", "--tp", "2")',
]


@rows("text", TEXTS)
def test_other_ways_to_start_one(text: str) -> None:
    found = read(text)
    assert said(found) == "--model-path m --tp 2"
    lines = (HEAD + text).split("\n")
    for word in found.words:
        where = word.place
        shown = lines[where.line - 1][where.column - 1 : where.column - 1 + where.length]
        assert word.text.removeprefix("--").replace("-", "_") in shown.replace("-", "_") or (
            (word.text == "--model-path" and shown == "model_name") or "m" in shown
        )


UNKNOWN = [
    ('os.system(f"sglang serve --tp {tp()} --model-path m")', "--tp ? --model-path m"),
    ('subprocess.run(["sglang", "serve", *x, "--model-path", "m"])', "? --model-path m"),
    ('m = input()\nos.system(f"sglang serve --model-path {m}-x")', "--model-path ?"),
    ('for m in "ab":\n    os.system(f"sglang serve --model-path {m}")', "--model-path ?"),
    (
        'c = ["sglang", "serve", "m"]\nif a:\n    c += ["--x", "1"]\nelse:\n    c += ["--x", "2"]\nsubprocess.run(c)',
        "m ? ?",
    ),
    (
        'M = "a"\nM = "b"\ndef f():\n    os.system(f"sglang serve --model-path {M}")',
        "--model-path ?",
    ),
    ('os.system("sglang serve --model-path {}".format(m))', "--model-path ?"),
    (
        "sgl.Engine(model_path=m, trust_remote_code=True, x=None, y=False)",
        "--model-path ? --trust-remote-code",
    ),
]


UNKNOWN += [
    (
        'class A:\n    b = None\n    def f(self):\n        run(["sglang", "serve", "m", "--x", self.b])',
        "m --x ?",
    ),
    ("sgl.Engine(model_path='m', stat_loggers=x, placement_group=y)", "--model-path m"),
    ('sgl.Engine(**{"enable_metrics": True, f"{p}_size": 2})', "? --enable-metrics"),
]


@rows("text, known", UNKNOWN)
def test_what_is_not_literal_is_unknown(text: str, known: str) -> None:
    assert said(read(text)) == known


NOTHING = [
    '"""Start: python -m sglang.launch_server --model-path m"""',
    "# python -m sglang.launch_server --model-path m\nx = 1",
    'print("python -m sglang.launch_server --model-path m")',
    'logger.info("run sglang serve m")',
    'raise ValueError("start python -m sglang.launch_server --model m")',
    'subprocess.run(["pkill", "-f", "sglang.launch_server"])',
    'x = "to start one, use python -m sglang.launch_server --model m"',
    "class Engine: pass\nEngine(model_path=1)",
    'subprocess.run([sys.executable, "-m", "sglang.launch_server", "--help"])',
    "sgl.Engine(server_args=args)",
    "sgl.Engine()",
    "from sglang.multimodal_gen.runtime.server_args import ServerArgs\nServerArgs(model_path='m')",
    'p.add_argument("--sglang-dir", help="of python -m sglang.launch_server --x")',
    'subprocess.run(["python", "compare.py", "--sglang-dir", "x"])',
]


@rows("text", NOTHING)
def test_what_starts_nothing(text: str) -> None:
    assert not read_python(HEAD + text, "x.py").invocations


@rows(
    "call",
    [
        'V1Container(command=["sglang", "serve"], args=ARGS)',
        'client.containers.run("image", entrypoint=["sglang", "serve"], command=ARGS)',
        'Model.upload(serving_container_command=["sglang", "serve"], serving_container_args=ARGS)',
    ],
)
def test_a_containers_command_and_arguments(call: str) -> None:
    arguments = 'ARGS = ["--model-path", "m", "--speculative-algorithm", "NGRAM"]\n'
    found = only(read_python(f"import sglang\n{arguments}{call}\n", "a.py"))
    assert [word.text for word in found.words] == [
        *("--model-path", "m", "--speculative-algorithm", "NGRAM")
    ]


def test_the_environment_the_image_and_the_gpus() -> None:
    found = read(
        'os.environ["SGLANG_A"] = "1"\nimage = modal.Image.from_registry("lmsysorg/sglang:v0.5.8")\n'
        '@app.function(gpu="H100:8")\ndef f():\n'
        '    subprocess.Popen(["sglang", "serve", "m"], env={**os.environ, "B": "2"})\n'
    )
    assert env(found)["SGLANG_A"] == "1"
    assert (found.image, found.hardware) == ("lmsysorg/sglang:v0.5.8", "h100:8")
    pinned = read('i.pip_install("sglang[all]==0.5.8")\nos.system("sglang serve m")')
    assert pinned.image == "sglang:0.5.8"


def test_a_default_of_the_environment() -> None:
    found = read('M = os.environ.get("M", "org/m")\nrun(["sglang", "serve", "--model-path", M])')
    assert said(found) == "--model-path org/m"
    assert to_deployment(found, "x").args["model_path"].value == "${oc.env:M,org/m}"


def test_numbers() -> None:
    text = (
        'N = int(os.environ.get("N", 4))\n'
        'run(["sglang", "serve", "m", "--context-length", str(32 * 1024), "--tp", str(N)])'
    )
    found = read(text)
    assert said(found) == "m --context-length 32768 --tp 4"
    assert at(found.words[2]) == (4, 54)
    assert said(read('run(["sglang", "serve", "m", str(2 ** 9), str(x * 2)])')) == "m 512 ?"
    assert said(read(f'run(["sglang", "serve", "m", str({"9" * 30} * 2)])')) == "m ?"


def test_a_trainers_own_launcher() -> None:
    found = read(
        'a = "--rollout-num-gpus-per-engine 2 " f"--save {x} "\n'
        's = "--sglang-mem-fraction-static 0.8 "\nexecute_train(train_args=f"{a} {s}")\n'
    )
    assert found.kind is InvocationKind.SLIME
    assert said(found) == "--mem-fraction-static 0.8"


@pytest.mark.thorough
def test_findings_have_their_places(tmp_path: Path) -> None:
    text = HEAD + PROGRAM.replace("--port", "--prot")
    (finding,) = [one for one in lint_text(text, "x.py", tmp_path) if one.severity == "error"]
    assert (finding.code, finding.place.line, finding.place.column) == ("SPL001", 12, 10)
    text = HEAD + 'e = sgl.Engine(model_path="m", speculative_algoritm="EAGLE")\n'
    (finding,) = [one for one in lint_text(text, "x.py", tmp_path) if one.severity == "error"]
    assert (finding.place.line, finding.place.column, finding.place.length) == (3, 32, 20)


def test_a_list_that_goes_elsewhere_may_get_more(tmp_path: Path) -> None:
    text = HEAD + 'def base():\n    return ["sglang", "serve", "--tp", "2"]\n'
    assert not [one for one in lint_text(text, "x.py", tmp_path) if one.severity == "error"]
    text = HEAD + 'subprocess.run(["sglang", "serve", "--tp", "2"])\n'
    assert [one for one in lint_text(text, "x.py", tmp_path) if one.severity == "error"]


def test_a_program_is_never_edited() -> None:
    text = (
        HEAD + 'os.system("python -m sglang.launch_server --model-path m --cuda-graph-max-bs 8")\n'
    )
    _, migration = migrate_data(text.encode(), "x.py", "0.5.23", "0.5.11")
    assert migration.text == text
    (problem,) = [one for one in migration.problems if "cuda" in one.message]
    assert "it is Python code" in problem.message and problem.help == "change it by hand"


def test_engine_fields_that_are_switches(tmp_path: Path) -> None:
    text = HEAD + "e = sgl.Engine(model_path='m', disable_cuda_graph=flag, tp_size=n, dtype=d)\n"
    assert not [one for one in lint_text(text, "x.py", tmp_path) if one.severity == "error"]
    args = to_deployment(only(read_python(text, "x.py")), "x").args
    assert "disable_cuda_graph" not in args and args["dtype"].value == "???"


def test_a_directory_with_programs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(HEAD + PROGRAM)
    (tmp_path / "b.py").write_text("import sglang\n")
    (tmp_path / "c.py").write_text("x = 'speculative'\n")
    assert [Path(one.path).name for one in collect([str(tmp_path)])] == ["a.py"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 3000 + '"sglang.launch_server"' + ")" * 3000,
        "x = " + "+".join(['"sglang.launch_server "'] * 20000),
        "x = [" + '"-m", "sglang.launch_server", ' * 100_000 + "]",
        "x = f'" + "{a}" * 20000 + " sglang.launch_server'",
        "if a:\n"
        + "".join(f"{' ' * n}if a:\n" for n in range(1, 90))
        + " " * 90
        + "sgl.Engine(m=1)",
        "sglang.launch_server = \\",
        "def f():\n" * 1,
        "x = 'sglang.launch_server \\N{nothing} \\x4'",
        "a = ['sglang.launch_server']\n" + "a = a + a\n" * 60,
        "a = 'sglang serve m '\n" + "a = f'{a}{a}'\n" * 60 + "os.system(a)",
        'x = """' + "python -m sglang.launch_server --a \\\n" * 30000 + '"""\nos.system(x)',
        "# sglang.launch_server\n" * 400_000,
        f"D = {dict.fromkeys('abc')}\ndef f(d):\n    d['a'] = 1\n    f(d)\n    f(d)\n    f(d)\n"
        + "f(D)\n" * 500
        + "'sglang serve'",
        f"L = {list(range(8000))}\n" + "if 'x' in L:\n    y = L[5]\n" * 3000 + "'sglang serve'",
        "def g(c):\n def f():\n  c['a'] = 1\n"
        + "  x = 1\n" * 20_000
        + " f()\n" * 20_000
        + "g({})\n'sglang serve'",
        "".join(["def g():\n", *(f" a{n} = 1\n def f{n}():\n  pass\n" for n in range(9000))])
        + "'sglang serve'",
        "a0 = {}\n"
        + "".join(f"a{n + 1} = {{'l': a{n}, 'r': a{n}}}\n" for n in range(60))
        + "'sglang serve'",
    ],
    ids=range(17),
)
def test_hostile_programs_are_bounded(text: str) -> None:
    start = time.monotonic()
    with contextlib.suppress(SpeclaunchError):
        read_text(text, "x.py")
    assert time.monotonic() - start < 20


@rows(
    "body, expected",
    [
        ("cmd += ['--' + k, str(v)]", "--model-path m --tp_size 2 --skip True --none ?"),
        (
            "if v is True:\n  cmd.append(f'--{k}')\n elif v is not None:\n  cmd += [f'--{k}', str(v)]",
            "--model-path m --tp_size 2 --skip",
        ),
        (
            "if v is None or isinstance(v, bool):\n  continue\n"
            " cmd += ['--' + k.replace('_', '-'), str(v)]",
            "--model-path m --tp-size 2",
        ),
        (
            "if not v:\n  continue\n cmd.append('--' + k)\n if v != True and k != 'none':\n"
            "  cmd.append(str(v))",
            "--model-path m --tp_size 2 --skip",
        ),
    ],
)
def test_a_dictionary_that_a_loop_adds_to_a_command(body: str, expected: str) -> None:
    program = (
        'd = {"model-path": "m", "tp_size": 2, "skip": True, "none": None}\n'
        f'cmd = ["python", "-m", "sglang.launch_server"]\nfor k, v in d.items():\n {body}\n'
        "subprocess.run(cmd)\n"
    )
    assert said(read(program)) == expected
    more = said(read(program.replace("None}", "None, **more}")))
    assert more.startswith(expected) and set(more.removeprefix(expected)) == {" ", "?"}


def test_a_step_that_a_condition_may_skip() -> None:
    program = (
        'cmd = ["python", "-m", "sglang.launch_server"]\nfor k, v in {"a": "1"}.items():\n'
        ' if x():\n  %s\n cmd += ["--" + k, v]\nsubprocess.run(cmd)\n'
    )
    found = read(program % "continue")
    assert {word.condition for word in found.words} == {"only under the condition of line 5"}
    assert said(read(program % "break")) == "?"


@rows("expression, value", [("1 << 20", "1048576"), ("2 ** 3", "8")])
def test_more_arithmetic(expression: str, value: str) -> None:
    assert said(read(f"sgl.Engine(model_path='m', page_size={expression})")).endswith(f" {value}")


@rows("expression", ["1 << 10**9", "2 ** 10**9", "9**99**9", "1 << -1", "2 ** -1"])
def test_numbers_that_are_not_computed(expression: str) -> None:
    assert said(read(f"sgl.Engine(model_path='m', page_size={expression})")).endswith(" ?")


SNIPPETS = st.sampled_from(
    [
        '["sglang", "serve", "m", "--tp", "2"]', 'f"sglang serve {m} --tp 2"', "cmd", "x", "None",
        '"--tp 2"', "*args", "sgl.Engine(model_path=m, **k)", "{'a': cmd}", "cmd + x", "-1",
        'popen_launch_server("m", x, other_args=cmd)', '"ä" "\\u00e4 sglang serve ü"', "lambda: cmd",
        "[c for c in cmd]", '"a" if x else cmd', 'shlex.split("sglang serve m")', "cmd.copy()",
    ]
)  # fmt: skip
LINES = st.sampled_from(
    [
        "cmd = {}", "cmd += {}", "cmd.extend({})", "subprocess.run({})", "return {}", "if x:",
        "for x in {}:", "for k, cmd in {}.items():", "def f(cmd={}):", "class A({}):", "else:", "with a as cmd:", "    cmd = {}",
        "        cmd.append({})", "    self.cmd = {}", "try:", "except E:", "match cmd:", "cmd['a'] = {}",
    ]
)  # fmt: skip


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(LINES, SNIPPETS), max_size=12))
def test_no_program_breaks_the_reader(lines: list[tuple[str, str]]) -> None:
    text = HEAD + "\n".join(line.replace("{}", part) for line, part in lines)
    try:
        found = read_text(text, "x.py").invocations
    except SpeclaunchError:
        return
    for one in found:
        for word in (*one.words, *one.program):
            assert 1 <= word.place.line <= text.count("\n") + 1


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(
    st.text("ab'\"\\{}nxu0N é\n\t", max_size=30), st.sampled_from(["", "r", "f", "b", "rf", "u"])
)
def test_the_places_of_a_strings_characters(body: str, prefix: str) -> None:
    for quote in ("'", '"""'):
        text = f"x = {prefix}{quote}{body}{quote}\n"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assign = ast.parse(text).body[0]
        except (SyntaxError, ValueError):
            continue
        if not isinstance(assign, ast.Assign) or not isinstance(assign.value, ast.Constant):
            continue
        value = assign.value.value
        if not isinstance(value, str):
            continue
        parts = ProgramPositions(Document(text, "x.py")).parts(assign.value)
        assert "".join(part.text for part in parts) in (value, "")
        for part in parts:
            for char, where in zip(part.text, part.where, strict=True):
                assert text[where] in (char, "\\")


DEFINED = [
    ("c = dict({'m': 'x', 't': 1}, t=2)\nsgl.Engine(model_path=c['m'], tp_size=c['t'])", ["x", "2"]),
    ('E = {"tp_size": 2}\nsgl.Engine(model_path=M["a"], tp_size=E.get("tp_size"))', ["x", "2"]),
    ('c = {"m": {"p": "x"}}\nsgl.Engine(model_path=c["m"]["p"], tp_size=c.get("t", 2))', ["x", "2"]),
    ('def kw():\n    "Text."\n    return {"model_path": "x", "tp_size": 2}\nsgl.Engine(**kw())', ["x", "2"]),
    (
        "@dataclass\nclass C:\n    m: str = 'x'\n    tp: int = field(default=8)\n    rest: str\n"
        "c = C(tp=2)\nsgl.Engine(model_path=c.m, tp_size=c.tp)",
        ["x", "2"],
    ),
    (
        "@serve.deployment\nclass D:\n    def __init__(self, **kw):\n        self.e = sgl.Engine(**kw)\n"
        "app = D.options(a=1).bind(model_path='x', tp_size=2)",
        ["x", "2"],
    ),
    (
        "class H:\n    def __init__(self, model, kwargs=None, tp=2):\n        self._m = model\n        self._tp = tp\n"
        "    def load(self):\n        sgl.Engine(model_path=self._m, tp_size=self._tp)\nh = H('x')",
        ["x", "2"],
    ),
    (
        "p = argparse.ArgumentParser()\np.add_argument('-t', '--tp-size', type=int, default=2)\n"
        "def go():\n    args = p.parse_args()\n    start('x', args)\n"
        "def start(m, o):\n    sgl.Engine(model_path=m, tp_size=o.tp_size)",
        ["x", "2"],
    ),
    (
        "def options():\n    p = ArgumentParser()\n    p.add_argument('--m', default=M['a'])\n"
        "    p.add_argument('--n', dest='tp', default=2)\n    return p.parse_args()\n"
        "def go():\n    o = options()\n    sgl.Engine(model_path=o.m, tp_size=str(o.tp))",
        ["x", "2"],
    ),
    (
        "def start(model, *, tp=1):\n    sgl.Engine(model_path=model, tp_size=tp)\ndef main():\n    start('x', tp=2)",
        ["x", "2"],
    ),
    ("def start(model='x', *, tp=2):\n    sgl.Engine(model_path=model, tp_size=tp)", ["x", "2"]),
    (
        "class S:\n    def __init__(self, model='x', tp=2):\n        self.m, self.tp = model, tp\n"
        "    def start(self):\n        sgl.Engine(model_path=self.m, tp_size=self.tp)",
        ["x", "2"],
    ),
]  # fmt: skip


@over(DEFINED, lambda case: case[0])
def test_values_one_definition_away(case: tuple[str, list[str]]) -> None:
    program, values = case
    found = only(read_python(f"import sglang as sgl\nM = {{'a': 'x'}}\n{program}\n", "x.py"))
    assert [word.text for word in found.words[1::2]] == values
    assert all(word.evaluated for word in found.words)


UNKNOWN = [
    "def start(tp):\n    sgl.Engine(model_path='x', tp_size=tp)\nstart(2)\nrun(start)",
    "def start(tp=2):\n    sgl.Engine(model_path='x', tp_size=tp)\nrun(start)",
    "class C:\n    tp = 2\nc = C()\nif a:\n    c.tp = 4\nsgl.Engine(model_path='x', tp_size=c.tp)",
    "class C:\n    tp = 2\nc = C(*a)\nsgl.Engine(model_path='x', tp_size=c.tp)",
    "c = {'tp': 2}\nif a:\n    c['tp'] = 4\nsgl.Engine(model_path='x', tp_size=c['tp'])",
    "c = {'tp': 2, **a}\nsgl.Engine(model_path='x', tp_size=c['tp'])",
    "p.add_argument('--tp')\na = p.parse_args()\nsgl.Engine(model_path='x', tp_size=a.tp)",
    "p.add_argument('--tp', action='store_true', default=2)\na = p.parse_args()\n"
    "sgl.Engine(model_path='x', tp_size=a.tp)",
    "p.add_argument('--tp', default=1)\nq.add_argument('--tp', default=2)\na = p.parse_args()\n"
    "sgl.Engine(model_path='x', tp_size=a.tp)",
    "c = dict(zip(a, b))\nsgl.Engine(model_path='x', tp_size=c.get('tp', 2))",
    "def kw(n=1):\n    if n > 1:\n        return {'tp': 1}\n    return {'tp': 2}\n"
    "sgl.Engine(model_path='x', tp_size=kw(a)['tp'])",
    "def kw():\n    return {'tp': 2}\nif a:\n    def kw():\n        return {'tp': 4}\n"
    "sgl.Engine(model_path='x', tp_size=kw()['tp'])",
    "n = 1\ndef up():\n    global n\n    n = 2\ndef start(tp):\n"
    "    sgl.Engine(model_path='x', tp_size=tp)\nup()\nstart(n)",
    "@wrap\ndef kw():\n    return {'tp': 2}\nsgl.Engine(model_path='x', tp_size=kw()['tp'])",
]


@over(UNKNOWN)
def test_values_that_several_places_decide_are_not_known(program: str) -> None:
    found = only(read_python(f"import sglang as sgl\n{program}\n", "x.py"))
    assert [word.evaluated for word in found.words] == [True, True, True, False]


def test_a_list_of_the_module_that_a_function_runs_is_one_command() -> None:
    found = read(
        "COMMAND = ['python', '-m', 'sglang.launch_server', '--model-path', NAME, '--tp', '2']\n"
        "class Server:\n    def start(self):\n        subprocess.Popen(COMMAND)\n"
    )
    assert [word.text for word in found.words] == ["--model-path", "NAME", "--tp", "2"]


SERVE = """\
import functools, threading, sglang as sgl
def serve(tp=2, steps=3):
    sgl.Engine(model_path="m", tp_size=tp, speculative_num_steps=steps)
serve(steps=5)
"""


@over(
    [
        "threading.Thread(target=serve, args=(4,)).start()\n",
        "run = functools.partial(serve, tp=4)\nrun()\n",
        "for start in [serve]:\n    start(4)\n",
        "serve = wrap(serve)\n",
    ]
)
def test_the_parameters_of_a_function_that_is_passed_on_are_unknown(passed: str) -> None:
    assert [word.evaluated for word in read(SERVE).words] == [True] * 6
    assert [word.evaluated for word in read(SERVE + passed).words] == [
        True,
        True,
        True,
        False,
    ] * 1 + [
        True,
        False,
    ]


KW = 'import sglang as sgl\nkw = {"model_path": "m", "tp_size": 2, "dtype": "half"}\n'


@over(
    [
        ('del kw["tp_size"]', ["m", "half"]),
        ('kw.pop("tp_size")', ["m", "half"]),
        ('kw.pop("tp_size", None)\nkw["tp_size"] = 4', ["m", "half", "4"]),
        ('tp = kw.pop("tp_size")', ["m", "half"]),
        ('kw.pop("x", None)', ["m", "2", "half"]),
        ('other = kw.copy()\nother.pop("tp_size")', ["m", "2", "half"]),
        ('other = dict(kw)\ndel other["tp_size"]', ["m", "2", "half"]),
        ('if x:\n    kw.pop("tp_size")', ["m", None, "half"]),
        ('for _ in x:\n    del kw["tp_size"]', ["m", None, "half"]),
        ('y = kw.pop("tp_size") if x else 1', ["m", None, "half"]),
        ('y = x and kw.pop("tp_size")', ["m", None, "half"]),
        ("kw.pop(x)", [None, None, None]),
        ("for x in y:\n    kw.pop(x, None)", [None, None, None]),
        ('kw.pop(f"tp_{x}")', [None, None, None]),
    ]
)
def test_a_key_that_a_program_removes(case: tuple[str, list[str | None]]) -> None:
    removed, values = case
    found = read(f"{KW}{removed}\nsgl.Engine(**kw)\n")
    assert [w.text if w.evaluated else None for w in found.words[1::2]] == values


def test_a_key_that_another_function_removes_is_unknown() -> None:
    found = read(f'{KW}def small():\n    kw.pop("tp_size")\n\ndef big():\n    sgl.Engine(**kw)\n')
    assert [word.evaluated for word in found.words[1::2]] == [True, False, True]


@over(
    [
        (
            "kw.update(tp_size=4, page_size=1)",
            "--model-path m --tp-size 4 --dtype half --page-size 1",
            set(),
        ),
        (
            'kw.update({"page_size": 1}, tp_size=4)',
            "--model-path m --tp-size 4 --dtype half --page-size 1",
            set(),
        ),
        (
            "if x:\n    kw.update(page_size=1)",
            "--model-path m --tp-size 2 --dtype half --page-size 1",
            {"--page-size", "1"},
        ),
        (
            'if x:\n    kw["page_size"] = 1',
            "--model-path m --tp-size 2 --dtype half --page-size 1",
            {"--page-size", "1"},
        ),
        (
            'if x:\n    kw["enable_metrics"] = True',
            "--model-path m --tp-size 2 --dtype half --enable-metrics",
            {"--enable-metrics"},
        ),
        ("if x:\n    kw.update(tp_size=4)", "--model-path m --tp-size ? --dtype half", set()),
        ("if x:\n    kw.update(other)", "? --model-path m --tp-size 2 --dtype half", set()),
        ("kw.update(**other)", "? --model-path m --tp-size 2 --dtype half", set()),
        (
            "if x:\n    kw.update(tp_size=4)\nelse:\n    kw.update(page_size=1)",
            "? ? --model-path m --tp-size 2 --dtype half",
            set(),
        ),
        (
            "for y in x:\n    kw.update(tp_size=y)",
            "? --model-path m --tp-size 2 --dtype half",
            set(),
        ),
    ]
)
def test_keys_that_a_program_adds(case: tuple[str, str, set[str]]) -> None:
    added, known, conditional = case
    found = read(f"{KW}{added}\nsgl.Engine(**kw)\n")
    assert said(found) == known
    assert {word.text for word in found.words if word.condition} == conditional


MADE = """\
def make(args):
    kw = {"model_path": args.model, "tp_size": 2}
    if args.fast:
        kw.update(speculative_algorithm="NGRAM")
    return kw
"""


def test_an_engine_with_the_arguments_that_a_function_returns() -> None:
    for use in ("sgl.Engine(**make(a))", "kw = make(a)\nllm = sgl.Engine(**kw)"):
        assert said(read(MADE + use)) == "--model-path ? --tp-size 2 --speculative-algorithm NGRAM"
    assert said(read(MADE + "sgl.Engine(**make(a), tp_size=4)")) == (
        "--model-path ? --tp-size 4 --speculative-algorithm NGRAM"
    )
    other = MADE.replace("make", "other") + "def f():\n    sgl.Engine(**make(a))\n"
    assert said(read(MADE + other)) == "--model-path ? --tp-size 2 --speculative-algorithm NGRAM"
    unknown = MADE.replace("    return kw", "    return clean(kw)")
    assert said(read(f"{unknown}sgl.Engine(**make(a))")) == "?"


@rows(
    "check, known",
    [
        ("if not MODEL:\n    print('no')\n    sys.exit(1)", False),
        ("if not MODEL:\n    raise ValueError('no')", False),
        ("if not MODEL:\n    print('no')", True),
        ("if MODEL:\n    sys.exit(1)", True),
    ],
)
def test_a_variable_that_a_program_requires(check: str, known: bool) -> None:
    """A program that stops without a value never starts the server with its empty default."""
    start = 'subprocess.run(["sglang", "serve", "--model-path", MODEL])'
    found = read(f'MODEL = os.environ.get("MODEL", "")\n{check}\ndef serve():\n    {start}\n')
    assert (found.words[1].text, found.words[1].evaluated) == ("" if known else "MODEL", known)


def test_a_command_that_a_method_begins_is_one_command() -> None:
    begin = "    def base(self):\n        return ['sglang', 'serve', 'm']\n"
    run = "    def run(self):\n        subprocess.run(self.base() + ['--tp', '2'])\n"
    assert said(read(f"class A:\n{begin}{run}")) == "m --tp 2"


TESTS = """\
class Base(CustomTestCase):
    model = "m"
    other_args = []
    @classmethod
    def get_server_args(cls):
        return ["--tp", "2"]
    @classmethod
    def setUpClass(cls):
        server_args = cls.get_server_args()
        server_args += cls.other_args
        cls.process = popen_launch_server(cls.model, timeout=9, other_args=server_args)
"""
GET = "    @classmethod\n    def get_server_args(cls):\n        "
SET_UP = "    @classmethod\n    def setUpClass(cls):\n        "


@over(
    [
        ("", []),
        ("class A(Base):\n    pass", []),
        ("class A(Base):\n    other_args = ['--ep', '2']", ["--model-path m --tp 2 --ep 2"]),
        ("class A(Base):\n    model = os.sep", ["--model-path ? --tp 2"]),
        ("class A(Base):\n    other_args = x", ["--model-path m --tp 2 ?"]),
        (f"class A(Base):\n{GET}return ['--ep', '2']", ["--model-path m --ep 2"]),
        (f"class A(Base):\n{GET}a = ['--ep']\n        a.append('2')\n        return a", ["--model-path m --ep 2"]),
        (f"class A(Base):\n{GET}return super().get_server_args() + ['--ep', '2']", ["--model-path m --tp 2 --ep 2"]),
        (f"class A(Base):\n{GET}if x:\n            return []\n        return ['--ep', '2']", ["--model-path m ?"]),
        (f"class A(Base):\n{SET_UP}cls.other_args = ['--ep', '2']\n        super().setUpClass()", ["--model-path m --tp 2 --ep 2"]),
        (f"class A(Base):\n    model = 'o'\n{SET_UP}pass", []),
        (f"class A(Base):\n    model = 'o'\nclass B(A):\n{GET}return []", ["--model-path o --tp 2", "--model-path o"]),
        ("class A(Base):\n    model = 'o'\nclass B(Base):\n    other_args = x\nclass C(A, B):\n    pass", ["--model-path o --tp 2", "--model-path m --tp 2 ?", "--model-path o --tp 2 ?"]),
        ("class A(A):\n    pass", []),
    ]
)  # fmt: skip
def test_each_test_class_that_changes_its_base_is_a_command(case: tuple[str, list[str]]) -> None:
    """SGLang's tests start a server in a base class with the attributes of each test class."""
    found = read_python(HEAD + TESTS + case[0], "x.py").invocations
    assert [said(one) for one in found] == ["--model-path m --tp 2", *case[1]]


def added(found: Invocation) -> str:
    return " ".join(word.text if word.evaluated else "?" for word in found.added)


@over(
    [
        ('"http://127.0.0.1:30000", 9', "--host 127.0.0.1 --port 30000"),
        ('timeout=9, base_url=f"http://0.0.0.0:{8000 + 1}"', "--host 0.0.0.0 --port 8001"),
        ('f"http://127.0.0.1:{port}", 9', "--host 127.0.0.1 --port ?"),
        ('f"http://{host}:3", 9', "--host ? --port ?"),
        ("DEFAULT_URL_FOR_TEST, 9", "--host ? --port ?"),
        ('"url", 9', "--host ? --port ?"),
        ('"http://127.0.0.1:30000", 9, pd_separated=True', ""),
        ("timeout=9", ""),
    ]
)
def test_the_address_of_a_test_server(case: tuple[str, str]) -> None:
    """SGLang's `popen_launch_server` adds the host and port of its URL."""
    url, known = case
    found = read(f'popen_launch_server("m", {url}, other_args=["--tp", "2"])')
    assert (said(found), added(found)) == ("--model-path m --tp 2", known)


FIXED = "--enable-multimodal --trust-remote-code"


@over(
    [
        ('"m"', "--model-path m", FIXED),
        ('"m", 8', "--model-path m", f"--tp 8 {FIXED}"),
        ('model_path="m", tp_size=8, extra_args=A', "--model-path m --ep 2", f"--tp 8 {FIXED}"),
        ('"m", tp_size=8, extra_args=["--tp", "4"]', "--model-path m --tp 4", FIXED),
        ('"m", tp_size=8, extra_args=["--trust-remote-code"]', "--model-path m --trust-remote-code", "--tp 8 --enable-multimodal"),
        ('"m", tp_size=n', "--model-path m", f"--tp ? {FIXED}"),
        ('"m", tp_size=8, extra_args=A + x', "--model-path m --ep 2 ?", f"--tp ? {FIXED}"),
        ('"m", tp_size=8, extra_args=x', "--model-path m", f"--tp ? {FIXED}"),
    ]
)  # fmt: skip
def test_a_variant_of_sglangs_tests(case: tuple[str, str, str]) -> None:
    settings, known, more = case
    found = read(f'A = ["--ep", "2"]\nv = [ModelLaunchSettings({settings}, env={{"B": "1"}})]')
    assert (said(found), added(found), env(found)) == (known, more, {"B": "1"})
    assert not to_deployment(found, "x").problems


@over(
    [
        ('for k in ("tp_size", "ep_size"):\n    kw[k] = 4', "--tp-size 4 --ep-size 4"),
        ('for k in ["ep_size"] + x:\n    kw[k] = 4', "? --tp-size 1"),
        ("for k in x:\n    kw[k] = 4", "? --tp-size 1"),
        ("kw[k] = 4", "? --tp-size 1"),
        ('kw[f"{x}_size"] = 4', "? --tp-size 1"),
    ]
)
def test_keys_that_variables_name(case: tuple[str, str]) -> None:
    assert said(read(f'kw = {{"tp_size": 1}}\n{case[0]}\nsgl.Engine(**kw)')) == case[1]


@over(
    [
        ("for k in ('tp', 'ep'):\n    c.append(f'--{k}=2')", "--tp=2 --ep=2"),
        ("for p in [subprocess.run(c)]:\n    a.append(p)\nc = []", ""),
        ("for k in ('--tp', x):\n    c += [k, '2']", "--tp 2 ? 2"),
        ("for k in ('tp', 'ep'):\n    if k in x:\n        break\n    c.append('--' + k)", "?"),
        ("o = ['tp']\nif x:\n    o += ['ep']\nfor k in o:\n    c.append('--' + k)", "?"),
        ("for k in ('tp', 'ep'):\n    c.append('--' + k)\n    start(c)", "--tp --ep"),
        ("for k, v in {**{'tp': 2}, **{'ep': 4}}.items():\n    c += [f'--{k}', v]", "--tp 2 --ep 4"),
    ]
)  # fmt: skip
def test_loops_over_known_items(case: tuple[str, str]) -> None:
    found = read(f'c = ["sglang", "serve", "m"]\n{case[0]}\nsubprocess.run(c)')
    assert " ".join(w.text if w.evaluated else "?" for w in found.words[1:]) == case[1]


@over(["**arguments", "**vars(args)", '**f({"model_path": "m"}, x)', "**make()"])
def test_an_engine_whose_arguments_are_made_elsewhere(given: str) -> None:
    (word,) = read(f"def start(arguments):\n    sgl.Engine({given})").words
    assert (word.text, word.evaluated) == (f"*{given[2:]}", False)


def test_an_engine_with_unknown_arguments_has_no_errors(tmp_path: Path) -> None:
    text = f"{HEAD}def start(**kw):\n    return sgl.Engine(**kw)\n"
    assert not [one for one in lint_text(text, "x.py", tmp_path) if one.severity == "error"]


SERVER = 'subprocess.Popen(["python", "-m", "sglang.launch_server", "--model-path", "m", %s])'


@over(
    [
        ("for bs in [8, 16]:\n    {server}", '"--tp", str(bs)', ["--tp 8", "--tp 16"]),
        ("for i, tp in enumerate((2, 4)):\n    {server}", '"--tp", str(tp), "--port", str(30000 + i)', ["--tp 2 --port 30000", "--tp 4 --port 30001"]),
        ("for i in range(N):\n    {server}", '"--port", str(30000 + 10 * i)', ["--port 30000", "--port 30010"]),
        ("for i in range(17):\n    {server}", '"--port", str(i)', ["--port ?"]),
        ("for i in range(n):\n    {server}", '"--port", str(i)', ["--port ?"]),
        ("for name, flags in CONFIGS:\n    p = {server}\n    p.wait()", "*flags", ["", "--tp 2"]),
        ("for name, flags in [*CONFIGS, x]:\n    {server}", "*flags", ["?"]),
        ("for key in TABLE:\n    {server}", '"--tp", TABLE[key]["tp"]', ["--tp 2", "--tp 4"]),
        ("for a, b in zip((1, 2), (3, 4)):\n    {server}", '"--tp", str(a), "--dp", str(b)', ["--tp 1 --dp 3", "--tp 2 --dp 4"]),
        ("for a in (1, 2):\n  for b in (3, 4):\n    {server}", '"--tp", str(a * b)', ["--tp 3", "--tp 4", "--tp 6", "--tp 8"]),
        ("for a in (1, 2):\n    p = {server}\n    while x():\n        break", '"--tp", str(a)', ["--tp 1", "--tp 2"]),
        ("for a in (1, 2):\n    p = {server}\n    if p.poll():\n        break", '"--tp", str(a)', ["--tp ?"]),
        ("for c in ROWS:\n    cmd = []\n    if c.get('tp'):\n        cmd += ['--tp', c['tp']]\n    {server}", "*cmd", ["", "--tp 2"]),
        ("tp = 1\nfor m in models:\n    {server}\n    for tp in (2, 4):\n        pass", '"--tp", str(tp)', ["--tp ?"]),
        ("port = 1\nfor m in models:\n    {server}\n    port += 1", '"--port", str(port)', ["--port ?"]),
    ]
)  # fmt: skip
def test_a_loop_starts_a_server_for_each_known_element(case: tuple[str, str, list[str]]) -> None:
    loop, words, expected = case
    program = (
        'N = 2\nCONFIGS = [("base", []), ("big", ["--tp", "2"])]\nROWS = [{"a": 1}, {"tp": "2"}]\n'
        'TABLE = {"a": {"tp": "2"}, "b": {"tp": "4"}}\n'
    )
    found = read_python(HEAD + program + loop.format(server=SERVER % words), "x.py").invocations
    assert [said(one) for one in found] == [f"--model-path m {more}".strip() for more in expected]


@over(
    [
        ("cfg", ["--tp 4", ""]),
        ("x", ["--tp ? --dp ?", "--tp ? --dp ?"]),
        ("{**cfg, **x}", ["--tp ? --dp ?", "--tp ? --dp ?"]),
    ]
)
def test_a_loop_over_keys_and_flags(case: tuple[str, list[str]]) -> None:
    """A key that is known to be set adds its flag; for an unknown key, the flag is conditional."""
    table, (words, known) = case
    found = read(
        f'cfg = {{"tp": 4, "dp": 0}}\nt = {table}\nc = ["sglang", "serve", "m"]\n'
        'for key, flag in [("tp", "--tp"), ("dp", "--dp")]:\n'
        "    if t.get(key):\n        c += [flag, str(t[key])]\nsubprocess.run(c)"
    )
    assert said(found) == f"m {words}"
    assert [word.text for word in found.words[1:] if word.condition][::2] == known.split()[::2]


@over(
    [
        ("c[-1] = '2'", "m --tp 2 --port 2"),
        ("c[3:3] = x", "m ?"),
        ("del c[3:5]", "m ?"),
        ("c.pop()", "m ?"),
        ("y = c.pop()", "m ?"),
        ("c.insert(3, '--x')", "m ?"),
        ("c.remove('--tp')", "m ?"),
        ("x and c.append('--x')", "m ?"),
        ("d = c\nd[-1] = '2'", "m --tp 2 --port 2"),
        ("d = c\nd += ['--x']", "m --tp 2 --port 1 --x"),
        ("c = c[:-2]", "m --tp 2"),
        ("c[c.index('--tp') + 1] = '4'", "m ?"),
        ("if x:\n    c[4] = '4'", "m --tp ? --port 1"),
    ]
)
def test_an_item_that_a_program_replaces(case: tuple[str, str]) -> None:
    start = 'c = ["sglang", "serve", "m", "--tp", "2", "--port", "1"]\n'
    assert said(read(f"{start}{case[0]}\nsubprocess.run(c)")) == case[1]


@over(['k["a"]["tp_size"] = 4', 'k["a"].update(tp_size=4)'])
def test_an_entry_of_a_nested_dictionary_that_a_program_sets(change: str) -> None:
    program = f'k = {{"a": {{"model_path": "m", "tp_size": 1}}}}\n{change}\nsgl.Engine(**k["a"])'
    assert said(read(program)) == "--model-path m --tp-size 4"


def test_a_dictionary_that_a_function_may_change_is_unknown() -> None:
    made = 'from tools import fill\nk = {"model_path": "m"}\nfill(k)\n'
    assert said(read(f'{made}sgl.Engine(model_path=k["model_path"])')) == "--model-path ?"


@rows("head, call", [("over()", "over()"), ("over(n=4)", "over()"), ("over(n)", "over(4)")])
def test_an_entry_that_another_function_sets(head: str, call: str) -> None:
    value = "n" if "n" in head else "4"
    found = read(
        f'C = {{"tp": 1}}\ndef {head}:\n    C["tp"] = {value}\ndef start(m):\n    {call}\n'
        '    sgl.Engine(model_path=m, tp_size=C["tp"])\nstart("m")'
    )
    assert said(found) == "--model-path m --tp-size 4"


def test_a_loops_variable_is_unknown_to_functions() -> None:
    found = read("for n in (1, 2):\n    pass\ndef f():\n    sgl.Engine(tp_size=n)\n")
    assert said(found) == "--tp-size ?"


BUILD = """\
def build(model, tp=2, **more):
    cmd = ["python", "-m", "sglang.launch_server", "--model-path", model, "--tp", str(tp)]
    if fast:
        cmd += ["--speculative-algorithm", "NGRAM"]
    return cmd

def start(cmd, name="x"):
    cmd += ["--log-level", "info"]
    return subprocess.Popen(cmd)

"""
INFO = "--log-level info"


@over(
    [
        ("subprocess.run(build('a'))", ["a --tp 2"]),
        ("cmd = build('a', tp=4)\nstart(cmd)", [f"a --tp 4 {INFO}"]),
        ("def main():\n    m = 'a'\n    for tp in (1, 2):\n        start(build(m, tp))\nmain()", [f"a --tp 1 {INFO}", f"a --tp 2 {INFO}"]),
        ("start(build('a'))\nstart(build('b', 4), name='y')", [f"a --tp 2 {INFO}", f"b --tp 4 {INFO}"]),
        ("def go(n):\n    start(build('a', n))\ngo(1)\ngo(2)", [f"a --tp 1 {INFO}", f"a --tp 2 {INFO}"]),
        ("def go(n):\n    start(build('a', n))\nfor n in x:\n    go(n)", [f"a --tp ? {INFO}"]),
        ("subprocess.run(build(*x))", ["? --tp ?"]),
        ("cmd, env = build('a'), {}\nsubprocess.run(cmd)", ["a --tp 2"]),
    ]
)  # fmt: skip
def test_a_command_that_one_function_builds_and_another_starts(
    case: tuple[str, list[str]],
) -> None:
    found = read_python(HEAD + BUILD + case[0], "x.py").invocations
    spoken = [said(one).replace("--speculative-algorithm NGRAM ", "") for one in found]
    spoken = [text.replace(" --speculative-algorithm NGRAM", "") for text in spoken]
    assert spoken == [f"--model-path {words}" for words in case[1]]
    assert all(any(word.condition for word in one.words) for one in found)


def test_the_parameters_of_a_function_are_not_entries_of_its_result() -> None:
    program = "def make(model):\n    return {'model_path': model}\nsgl.Engine(**make(model='m'))"
    assert said(read(program)) == "--model-path m"
    many = "".join(f"start({n})\n" for n in range(17))
    program = f"def start(n):\n    sgl.Engine(model_path='m', tp_size=n)\n{many}"
    assert said(read(program)) == "--model-path m --tp-size ?"


SETTINGS = "model: org/m\nserver: {port: 30001, tp: 2, fast: true}\nextra: [--log-level, info]\n"
OPEN = [
    'c = yaml.safe_load(open("serve.yaml"))',
    'with open("serve.yaml") as f:\n    c = yaml.safe_load(f)',
    'NAME = "serve.yaml"\nwith open(NAME, "r") as f:\n    c = yaml.safe_load(f.read())',
    'c = yaml.safe_load(Path("serve.yaml").read_text())',
    'c = yaml.safe_load((Path(__file__).resolve().parent / "serve.yaml").read_text())',
    'c = yaml.safe_load(open(os.path.join(os.path.dirname(__file__), "serve.yaml")))',
    'HERE = Path(__file__).parent\nwith (HERE / "serve.yaml").open() as f:\n    c = yaml.load(f, L)',
    'def read(path):\n    with open(path) as f:\n        return yaml.safe_load(f)\nc = read("serve.yaml")',
    'with open("serve.json") as f:\n    c = json.load(f)',
    'try:\n    with open("serve.yaml") as f:\n        c = yaml.safe_load(f) or {}\nexcept OSError:\n    c = {}',
    'def read(path):\n    try:\n        with open(path) as f:\n            c = yaml.safe_load(f)\n            return c\n'
    '    except OSError as e:\n        print(e)\n        return {}\nc = read("serve.yaml")',
    'p.add_argument("--c", default="serve.yaml")\nc = yaml.safe_load(open(p.parse_args().c))',
]  # fmt: skip
USE = """
subprocess.run(["sglang", "serve", c["model"], "--tp", str(c["server"]["tp"]), *c["extra"]])
"""


@pytest.mark.parametrize("load_file", OPEN)
def test_values_of_a_file_next_to_the_program(load_file: str, tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text(SETTINGS)
    data = {"model": "org/m", "server": {"tp": 2}, "extra": ["--log-level", "info"]}
    (tmp_path / "serve.json").write_text(json.dumps(data))
    program = f"{HEAD}{load_file}{USE}"
    found = only(read_python(program, str(tmp_path / "x.py")))
    assert said(found) == "org/m --tp 2 --log-level info"
    assert (found.words[0].why or "").startswith("the value in serve.")
    assert found.words[0].place.path == str(tmp_path / "x.py")
    folder = tmp_path / "empty"
    folder.mkdir()
    for file in (tmp_path / "serve.yaml", tmp_path / "serve.json"):
        file.unlink()
        (folder / file.name).symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text(SETTINGS)
    for where in (tmp_path, folder):  # no file, or a link to another folder
        assert said(only(read_python(program, str(where / "x.py")))) == "? --tp ? ?"


@over(
    [
        'c = yaml.safe_load(open(sys.argv[1]))',
        'c = yaml.safe_load(open(f"{name}.yaml"))',
        'c = yaml.safe_load(open("../serve.yaml"))',
        'c = yaml.safe_load(open(os.environ.get("C", "serve.yaml")))',
        'c = yaml.safe_load(open("broken.yaml"))',
        "c = yaml.safe_load(open(path))",
        'try:\n    c = yaml.safe_load(open("serve.yaml"))\n    c.update(choose())\nexcept OSError:\n    c = {}',
        'def read():\n    try:\n        return yaml.safe_load(open("serve.yaml"))\n    except OSError:\n        pass\nc = read()',
    ]
)  # fmt: skip
def test_values_of_a_file_that_is_not_read(load_file: str) -> None:
    with TemporaryDirectory() as outer:
        folder = Path(outer) / "app"
        folder.mkdir()
        for name in ("../serve.yaml", "serve.yaml", "name.yaml"):
            (folder / name).write_text(SETTINGS)
        (folder / "broken.yaml").write_text(f"{SETTINGS}a: [\n")
        found = only(read_python(f"{HEAD}{load_file}{USE}", str(folder / "x.py")))
    assert said(found) == "? --tp ? ?"


def test_a_deep_file_leaves_its_other_values_known(tmp_path: Path) -> None:
    deep = "[" * 800 + "]" * 800
    (tmp_path / "c.json").write_text(f'{{"a": {deep}, "port": 7}}')
    program = 'c = json.load(open("c.json"))\nsgl.Engine(model_path="m", port=c["port"])'
    assert said(only(read_python(HEAD + program, str(tmp_path / "x.py")))) == (
        "--model-path m --port 7"
    )


def test_the_keywords_of_a_function_without_callers_are_unknown() -> None:
    program = (
        "from sglang import Engine\ndef start(**more):\n    return Engine(**more, tp_size=2)\n"
    )
    found = read(program)
    assert (found.words[0].text, found.words[0].evaluated) == ("*more", False)


STARTED_BY_OTHERS = """\
import fire
def start(model="m", port=None, tp=2):
    port = 30000 if port is None else port
    sgl.Engine(model_path=model, port=port, tp_size=tp)
{}
"""


@over(
    [
        ("", "--model-path m --port 30000 --tp-size 2"),
        ("fire.Fire(start)", "--model-path m --port 30000 --tp-size 2"),
        ("fire.Fire({'start': start})", "--model-path m --port 30000 --tp-size 2"),
        ("register(start)", "--model-path ? --port ? --tp-size ?"),
        ("start(tp=4)", "--model-path m --port 30000 --tp-size 4"),
        ("start(port=1)", "--model-path m --port 1 --tp-size 2"),
        ("start(port=unset)", "--model-path m --port ? --tp-size 2"),
        ("start(tp=4)\nfire.Fire(start)", "--model-path ? --port ? --tp-size ?"),
        ("start(tp=4)\nregister(start)", "--model-path ? --port ? --tp-size ?"),
    ]
)
def test_parameters_of_a_function_that_others_call(case: tuple[str, str]) -> None:
    assert said(read(STARTED_BY_OTHERS.replace("{}", case[0]))) == case[1]


def test_defaults_of_a_command_are_assumptions() -> None:
    found = read(STARTED_BY_OTHERS.replace("{}", "fire.Fire(start)"))
    assert [word.why for word in found.words[1::2]] == [
        "the default of model",
        "the default of port",
        "the default of tp",
    ]


@over(
    [
        ("from achatbot.core.llm.sglang.generator import ServerArgs", 1),
        ("from vllm.config import ServerArgs", 0),
        ("from sglang.multimodal_gen import ServerArgs", 0),
        ("from other.sglang import Engine as ServerArgs", 0),
    ]
)
def test_server_args_that_a_wrapper_passes_on(case: tuple[str, int]) -> None:
    text = f"{case[0]}\nGenerator(**EngineArgs(args=ServerArgs(model_path='m').__dict__).__dict__)"
    assert len(read_python(text, "x.py").invocations) == case[1]


OFF = """\
USE_SERVER: bool = False
ENGINE, size = "vllm", 4
model, port = "m", 1 if USE_SERVER else 2
name = "m"
def launch(size, extra):
    words = ["sglang", "serve", "--model-path", "m", "--port", str(port)]
    if USE_SERVER:
        words += ["--tp", "2"]
        {}
    return 1
launch(8, [])
"""


@over(
    [
        ('sgl.Engine(model_path=name, tp_size=2)', "--model-path m --tp-size 2"),
        ('subprocess.run(["sglang", "serve", name, "--tp", "2"])', "m --tp 2"),
        ('subprocess.run(["sglang", "serve", name, "--port", port])', "m --port ?"),
        ('subprocess.run(["sglang", "serve", name, "--tp", size])', "m --tp ?"),
        ('sgl.Engine(model_path=name, log_requests=USE_SERVER)', "--model-path m --log-requests ?"),
        ('print(words)', ""),
        ('return words', ""),
    ]
)  # fmt: skip
def test_a_start_that_a_constant_excludes(case: tuple[str, str]) -> None:
    """It is listed, without values that may differ if the constant does."""
    found = read_python(HEAD + OFF.replace("{}", case[0]), "x.py").invocations
    complete = [said(launch) for launch in found if launch.words[0].text != "*"]
    assert complete == [case[1]] * bool(case[1])


def test_a_start_that_an_argument_excludes_is_not_listed() -> None:
    text = """\
def launch(engine, port):
    if engine == "sglang":
        subprocess.run(["sglang", "serve", "m", "--port", str(port)])
launch("vllm", 1)
launch("sglang", 2)
"""
    assert said(read(text)) == "m --port 2"


def test_a_switch_that_is_on_by_default_is_an_assumption() -> None:
    found = read("def start(trace=True):\n    sgl.Engine(model_path='m', enable_trace=trace)")
    assert said(found) == "--model-path m --enable-trace"
    assert found.words[2].why == "the default of trace"


NEIGHBORS = {
    "constants.py": """\
import os
PORT = 30000
TP: int = 2
EXTRA = ["--log-level", "info"]
GROWN = ["--a"]
GROWN.append("--b")
TWICE = 1
TWICE = 2
COMMAND = ["sglang", "serve", "m"]
HOME = os.environ.get("HOME_OF_MODELS", "/models")
""",
    "config/__init__.py": "from .server import Config\nfrom . import server",
    "config/server.py": """\
from dataclasses import dataclass, field
from ..constants import PORT as DEFAULT_PORT
MODEL = "org/m"
@dataclass
class Base:
    model: str = MODEL
    port: int = DEFAULT_PORT
@dataclass
class Config(Base):
    tp: int = field(default=4)
    dp: int | None = None
""",
    "settings.py": """\
import os
from functools import lru_cache
class Settings(BaseSettings):
    model: str = Field("org/m", env="MODEL")
    tp: int = 2
    port: int = 1
settings = Settings(port=3)
changed = Other()
changed.x = 3
@lru_cache
def get_settings() -> Settings:
    return Settings(port=int(os.getenv("PORT", "30000")))
def load_settings(port):
    return Settings(port=port)
def either(x):
    if x:
        return Settings(tp=4)
    return Settings()
class Other:
    x: int = 1
    @classmethod
    def from_env(cls):
        return cls(x=int(os.environ.get("X", "4")))
""",
    "managers.py": """\
from .config.server import Base
class Manager:
    host = "0.0.0.0"
    def __init__(self, config: Base, name="x"):
        self.config, self.name = config, name
    def level(self):
        return "info"
    def start(self):
        subprocess.Popen(["sglang", "serve", "never"])
""",
}


@over(
    [
        ("from .constants import PORT, TP", "str(PORT), TP", "30000 2"),
        ("from app.constants import PORT as P", "str(P)", "30000"),
        ("from constants import PORT", "str(PORT)", "30000"),
        ("from . import constants", "str(constants.PORT)", "30000"),
        ("import constants as c", "str(c.PORT), *c.EXTRA", "30000 --log-level info"),
        ("import app.constants", "str(app.constants.PORT)", "30000"),
        ("from .constants import PORT", "os.getenv('PORT', PORT)", "30000"),
        ("from .constants import HOME", "HOME", "/models"),
        ("from .config.server import MODEL", "MODEL", "org/m"),
        ("from .config import server", "server.MODEL", "org/m"),
        ("from .config import Config", "Config().model, str(Config().tp)", "org/m 4"),
        ("from .config.server import Config", "str(Config(port=1).port)", "1"),
        ("from .constants import TWICE", "str(TWICE)", "?"),
        ("from .constants import GROWN", "*GROWN", "?"),
        ("from .constants import COMMAND", "*COMMAND", "?"),
        ("from .constants import PORT\nPORT = free()", "str(PORT)", "?"),
        ("from .constants import absent", "absent", "?"),
        ("from ..app.constants import PORT", "str(PORT)", "30000"),
        ("from .settings import settings as s", "s.model, str(s.tp), str(s.port)", "org/m 2 3"),
        ("from . import settings", "str(settings.settings.port)", "3"),
        ("from .settings import get_settings", "str(get_settings().port)", "30000"),
        ("from .settings import load_settings\nport = 7", "str(load_settings(4).port)", "?"),
        ("from .settings import either", "str(either(1).tp)", "?"),
        ("from .settings import changed as c", "str(c.x)", "?"),
        ("from .settings import Other", "str(Other.from_env().x)", "4"),
        ("from .settings import settings as s\ndef f():\n    s.tp = 8", "str(s.tp)", "?"),
        ("from .broken import PORT", "str(PORT)", "?"),
        ("from .linked import PORT", "str(PORT)", "?"),
    ]
)
def test_values_of_a_module_that_a_program_imports(case: tuple[str, str, str]) -> None:
    statement, words, expected = case
    with TemporaryDirectory() as outer:
        folder = Path(outer) / "app"
        (folder / "config").mkdir(parents=True)
        for name, text in NEIGHBORS.items():
            (folder / name).write_text(text)
        (folder / "broken.py").write_text("PORT = 1\n(")
        (Path(outer) / "other").write_text("PORT = 1\n")
        (folder / "linked.py").symlink_to("../other")
        program = f'{HEAD}{statement}\nsubprocess.run(["sglang", "serve", "m", {words}])\n'
        found = only(read_python(program, str(folder / "x.py")))
    assert said(found) == f"m {expected}"
    assert {word.place.path for word in found.words} == {str(folder / "x.py")}
    assert all(word.why or word.text[:2] == "--" or word.text == "1" for word in found.words[1:])


@pytest.mark.parametrize(
    "body", ["super().__init__(config, name='y')", "super().__init__(config); self.name = 'y'"]
)
def test_a_base_class_of_a_module_that_a_program_imports(body: str, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    for name, text in NEIGHBORS.items():
        (tmp_path / name).write_text(text)
    program = f"""\
from .config import Config
from .managers import Manager
class Own(Manager):
    def __init__(self, config: Config):
        {body}
    def run(self):
        c = ["sglang", "serve", self.config.model, "--host", self.host, "--name", self.name]
        if self.config.dp is not None:
            c += ["--dp", str(self.config.dp)]
        c += ["--tp", str(self.config.tp), "--log-level", self.level()]
        subprocess.run(c)
"""
    found = only(read_python(HEAD + program, str(tmp_path / "x.py")))
    assert said(found) == "org/m --host 0.0.0.0 --name y --dp ? --tp 4 --log-level info"
    assert found.words[0].why == "the value in config/server.py"
    assert [word.text for word in found.words if word.condition] == ["--dp", "self.config.dp"]


@over(
    [
        ("--tp {args.tp} --port {args.port}", "--tp 2 --port 30000"),
        ("--url http://h:{args.port}/{args.tp} --tp={args.tp}", "--url http://h:30000/2 --tp=2"),
        ("--x '{args.text}'", "--x a b"),
    ]
)
def test_defaults_in_a_text_are_assumptions(case: tuple[str, str]) -> None:
    """A text with a space is a known default without its note."""
    command, expected = case
    options = "".join(
        f'parser.add_argument("--{name}", default={default!r})\n'
        for name, default in (("tp", 2), ("port", 30000), ("text", "a b"))
    )
    program = f'{options}args = parser.parse_args()\nos.system(f"sglang serve m {command}")'
    found = read(program)
    assert said(found) == f"m {expected}"
    notes = {word.why for word in found.words if any(char in word.text for char in "23")}
    assert all((note or "").startswith("the default of the option ") for note in notes)
