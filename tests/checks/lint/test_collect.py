from __future__ import annotations

import os
from pathlib import Path

import pytest

from speclaunch.checks.lint.collect import LintedFile
from speclaunch.core.resources import conf_dir, recipes_dir
from tests.support.lint_report import collect

COMMAND = "python3 -m sglang.launch_server --model-path m\n"


def names(path: Path) -> list[str]:
    return [Path(source.path).name for source in collect([str(path)])]


def only(path: Path) -> LintedFile:
    (source,) = collect([str(path)])
    return source


def test_a_directory_gives_what_holds_a_deployment(tmp_path: Path) -> None:
    for name in ("a.sh", "run", "x.py", ".hidden.sh", "readme.md"):
        (tmp_path / name).write_text(COMMAND if name != "readme.md" else f"```bash\n{COMMAND}```\n")
    for folder in (".git", ".venv", "node_modules", "deep/er", ".github"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "b.sh").write_text(COMMAND)
    (tmp_path / "helm.yaml").write_text("a: {{ .Values.sglang }}\nb: {{ x }\n")
    (tmp_path / "other.yaml").write_text("a: 1\n")
    (tmp_path / "group.yaml").write_text("# @package args\nmodel_path: m\n")
    assert names(tmp_path) == [
        *(".hidden.sh", "a.sh", "helm.yaml", "readme.md", "run", "x.py"),
        *("b.sh", "b.sh"),  # .github/, deep/er/
    ]


POD = 'kind: Pod\nspec:\n  containers:\n  - command: [sglang, serve, m, --tp, "${TP}"]\n'


@pytest.mark.parametrize("name", ["Makefile", "serve.mk", "serve.mak"])
def test_makefiles_below_a_directory_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(f"serve:\n\t{COMMAND}")
    assert len(only(tmp_path).invocations) == 1


@pytest.mark.parametrize("suffix", [".template", ".tmpl", ".example", ".EXAMPLE"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("pod.yaml", POD), ("pod.yml", POD), ("run.sh", COMMAND), ("run", COMMAND)),
        *(
            ("x.service", f"ExecStart=/bin/{COMMAND}"),
            ("x.container", f"[Container]\nImage=sglang\nExec={COMMAND}"),
            ("x.py", f"import os\nos.system({COMMAND!r})"),
        ),
        ("readme.md", f"```bash\n{COMMAND}```\n"),
    ],
)
def test_templates_below_a_directory_are_read(
    tmp_path: Path, name: str, text: str, suffix: str
) -> None:
    file = tmp_path / f"{name}{suffix}"
    file.write_text(text)
    below, named = only(tmp_path), only(file)
    assert len(below.invocations) == 1 and below.invocations == named.invocations


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("launch.json", '{"module": "sglang.launch_server", "args": ["--tp", "two"]}'),
        ("serve.ps1", "python -m sglang.launch_server `\n  --tp two\n"),
        ("supervisord.conf", "[program:a]\ncommand=python -m sglang.launch_server --tp two\n"),
    ],
)
def test_other_forms_below_a_directory_are_read(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (found,) = collect([str(tmp_path)])
    assert [word.text for word in found.invocations[0].words] == ["--tp", "two"]


DOCKER = 'FROM lmsysorg/sglang\nCMD ["python3", "-m", "sglang.launch_server", "--model", "m"]\n'


@pytest.mark.parametrize("name", ["Dockerfile", "app.dockerfile", "Dockerfile.cu126"])
def test_dockerfiles_below_a_directory_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(DOCKER)
    (found,) = collect([str(tmp_path)])
    assert [word.text for word in found.invocations[0].words] == ["--model", "m"]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("serve.py", f'import os\nos.system("{COMMAND.strip()}"\n', True),
        ("engine.py", "llm = sgl.Engine(**sglang_arguments())\n)\n", True),
        ("launch.json", '{"module": "sglang.launch_server", "options": {"--tp": "two"}}', True),
        ("serve.bat", "python -m sglang.launch_server ^\n  --tp two\n", True),
        ("serve.toml", 'command = ["sglang", "serve", "m"]\n', True),
        ("serve.toml.example", 'command = ["sglang", "serve", "m"]\n', True),
        ("notes.txt.template", "sglang serve m\n", False),
        ("stop.sh", "pkill -f sglang.launch_server\n", False),
        ("told.py", "# python3 -m sglang.launch_server starts it\n", False),
        ("text.py", 'import sglang\ndef f():\n    """Like\n    sgl.Engine(**k)."""\n', False),
        ("engine.log", f"+ {COMMAND}", False),
        ("notes.txt", "sglang serve m\n", False),
        ("client.py", "import sglang\n", False),
        ("weights.bin", "\0 sglang.launch_server", False),
    ],
)
def test_what_no_reader_knows_is_named(tmp_path: Path, name: str, text: str, named: bool) -> None:
    (tmp_path / name).write_text(text)
    found = list(collect([str(tmp_path)]))
    assert [source.not_read for source in found] == [True] * named
    (source,) = collect([str(tmp_path / name)])
    assert source.not_read or not named


@pytest.mark.thorough
def test_every_recipe_of_ours_is_one_and_no_group_is() -> None:
    found = list(collect([str(recipes_dir())]))
    assert len(found) == len(list(recipes_dir().glob("*.yaml")))
    assert all(source.recipe is not None for source in found)
    assert not [
        s.path for s in collect([str(conf_dir())]) if s.recipe or s.problems or s.invocations
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("args: {model_path: m, sglang\n", "not valid YAML"),
        ("args: {model_path: m}\nargz: 1\n", "unknown key"),
        ("defaults:\n  - nothing\nargs: {model_path: sglang}\n", "nothing"),
    ],
)
def test_a_broken_recipe_is_a_problem_with_a_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    source = only(tmp_path / "r.yaml")
    assert source.recipe is None
    assert said in source.problems[0].message
    assert [s.problems for s in collect([str(tmp_path)])] == [source.problems]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.sh").write_bytes(b"# \xe9 sglang\n")
    assert "UTF-8" in only(tmp_path / "latin.sh").problems[0].message
    assert "no such file" in only(tmp_path / "none.sh").problems[0].message
    os.mkfifo(tmp_path / "pipe.sh")
    assert only(tmp_path / "pipe.sh").problems
    assert names(tmp_path) == ["latin.sh"]
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert only(tmp_path / "loop").problems


def test_the_extent_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(
        "#!/bin/bash\nMODEL=m\n\npython3 -m sglang.launch_server \\\n  --model-path $MODEL \\\n"
        "  --port 1\necho\n"
    )
    assert only(tmp_path / "a.sh").commands == ((4, 6),)


def test_a_recipe_of_defaults_alone(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "defaults:\n  - base\n  - model: qwen25_7b\n  - speculation: ngram\n  - _self_\n"
    )
    assert only(tmp_path / "r.yaml").recipe is not None
    (tmp_path / "other.yaml").write_text("defaults:\n  - base_config\n  - model: resnet\n")
    assert only(tmp_path / "other.yaml").recipe is None


def test_a_compiled_program_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"\x7fELF\x02\x00\xff sglang speculative")
    assert names(tmp_path) == []
