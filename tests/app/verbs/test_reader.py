"""Placeholders, unreadable lines and followed files, as lint, import and migrate see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.verbs.test_cli import run

SERVER = "python3 -m sglang.launch_server"
PASTED = (
    f"{SERVER} --model <target-model-path> \\\n"
    "  --speculative-algorithm EAGLE3 \\\n"
    "  --speculative-draft-model-path <draft> \\\n"
    "  --speculative-num-steps 3 --speculative-eagle-topk 1 --cuda-graph-max-bs 8\n"
)


def linted(path: str, cwd: Path, *words: str) -> tuple[int, list[tuple[str, str, int]]]:
    done = run("lint", path, "--engine", "0.5.23", "--output-format", "json", *words, cwd=cwd)
    files = json.loads(done.stdout)["files"]
    found = [(f["code"], f["path"], f["line"]) for file in files for f in file["findings"]]
    return done.returncode, found


@pytest.mark.thorough
def test_a_placeholder_in_a_script_is_told_by_every_verb(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(PASTED)
    code, found = linted("run.sh", tmp_path, "--select", "SPL016")
    assert code == 1
    assert found == [("SPL016", "run.sh", 1), ("SPL016", "run.sh", 3)]
    imported = run("import", "run.sh", cwd=tmp_path)
    assert imported.returncode == 1 and "redirects from the file `draft`" in imported.stderr
    assert "model_path: ???  # fill in `<target-model-path>`" in imported.stdout
    assert "EAGLE3 on an unset model" in imported.stdout
    migrated = run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path)
    assert migrated.returncode == 1 and "redirects from the file" in migrated.stderr
    assert (tmp_path / "run.sh").read_text() == PASTED


@pytest.mark.thorough
def test_in_a_document_it_is_a_value_that_nobody_knows(tmp_path: Path) -> None:
    text = f"# How\n\n```bash\n{PASTED}```\n"
    (tmp_path / "x.md").write_text(text)
    _, found = linted("x.md", tmp_path)
    codes = {code for code, _, _ in found if code.startswith("SPL")}
    assert codes <= {"SPL002", "SPL005", "SPL104", "SPL106"}, found
    imported = run("import", "x.md", cwd=tmp_path)
    assert imported.returncode == 0, imported.stderr
    assert "speculative_draft_model_path: ???  # fill in `<draft>`" in imported.stdout
    migrated = run("migrate", "x.md", "--from", "0.5.19", "--to", "0.5.23", cwd=tmp_path)
    assert migrated.returncode == 0, migrated.stderr
    after = (tmp_path / "x.md").read_text()
    assert after == text.replace("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")


@pytest.mark.thorough
def test_one_unreadable_line_hides_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        f"{SERVER} --model-path a --nope 1\n"
        "[2026-01-01 10:00:00] INFO: can't open (the cache\n"
        f"""{SERVER} --model-path b --json-model-override-args '{{"a": 1}}' --nope 2\n"""
    )
    code, found = linted("run.sh", tmp_path)
    assert code == 2  # not everything was checked
    assert [one for one in found if one[0] in ("SPL000", "SPL001")] == [
        ("SPL001", "run.sh", 1), ("SPL000", "run.sh", 2), ("SPL001", "run.sh", 3),
    ]  # fmt: skip
    imported = run("import", "run.sh", "--command", "2", "--engine", "0.5.23", cwd=tmp_path)
    assert imported.returncode == 2 and "run.sh:2:" in imported.stderr
    assert "model_path: b" in imported.stdout


@pytest.mark.thorough
def test_the_file_behind_config_is_judged_with_places_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("model-path: m\nspeculative-algorithm: EAGEL\n")
    (tmp_path / "run.sh").write_text(f"{SERVER} --config conf.yaml\n")
    code, found = linted("run.sh", tmp_path)
    assert code == 1 and found == [("SPL101", "conf.yaml", 2)]
    (tmp_path / "conf.yaml").unlink()
    code, found = linted("run.sh", tmp_path)
    assert code == 0 and found == []
    said = run("lint", "run.sh", "--engine", "0.5.23", cwd=tmp_path).stdout
    assert "skipped: --config conf.yaml: no such file here" in said


@pytest.mark.thorough
def test_a_recipe_reads_the_file_where_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("model-path: m\nspeculative-algorithm: EAGEL\n")
    (tmp_path / "mine.yaml").write_text(
        "defaults:\n  - base\n  - _self_\nargs:\n  config: conf.yaml\n"
    )
    code, found = linted("mine.yaml", tmp_path)
    assert code == 1 and ("SPL101", "conf.yaml", 2) in found
    (tmp_path / "other").mkdir()
    code, found = linted("../mine.yaml", tmp_path / "other")
    assert code == 0 and not [one for one in found if one[0] in ("SPL004", "SPL101")]


@pytest.mark.parametrize(
    ("line", "version", "codes"),
    [
        ("sglang serve Qwen/Qwen3-8B --tp 2", "0.5.16", set()),
        ("sglang serve Qwen/Qwen3-8B --tp 2", "0.5.14", {"SPL001", "SPL004"}),
        ("sglang serve --model-type llm --model-path m", "0.5.10", set()),
        ("sglang serve --model-type llm --model-path m", "0.5.9", {"SPL001"}),
        ("sglang serve --model m", "0.5.10", {"SPL004"}),
        (f'{SERVER} --model m "$@"', "0.5.23", set()),
    ],
)
def test_what_the_program_takes_itself(
    line: str, version: str, codes: set[str], tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(line + "\n")
    done = run("lint", "run.sh", "--engine", version, "--output-format", "json", cwd=tmp_path)
    files = json.loads(done.stdout)["files"]
    assert {f["code"] for file in files for f in file["findings"]} == codes


@pytest.mark.thorough
def test_import_makes_the_directory(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{SERVER} --model-path a\n")
    done = run("import", "run.sh", "--to-dir", "new/dir", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "dir" / "run.yaml").is_file()
    (tmp_path / "file").write_text("")
    refused = run("import", "run.sh", "--to-dir", "file", cwd=tmp_path)
    assert refused.returncode == 2 and "--to-dir file" in refused.stderr


@pytest.mark.thorough
def test_bash_takes_carriage_returns_for_text(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\r\n# serve\r\n"
        f"{SERVER} --model-path m \\\r\n  --speculative-algorithm NGRAM --cuda-graph-max-bs 8\r\n"
    )
    script = tmp_path / "run.sh"
    script.write_bytes(text.encode())
    code, found = linted("run.sh", tmp_path)
    assert code == 1
    assert [one for one in found if one[0] == "SPL016"] == [("SPL016", "run.sh", 1)]
    assert ("SPL002", "run.sh", 4) in found  # the command is judged as it was meant
    imported = run("import", "run.sh", cwd=tmp_path)
    assert imported.returncode == 1 and "CRLF line endings" in imported.stderr
    assert "speculative_algorithm: NGRAM" in imported.stdout
    migrated = run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path)
    assert migrated.returncode == 1 and "dos2unix run.sh" in migrated.stderr
    assert script.read_bytes() == text.encode()
    script.write_bytes(b"#!/bin/bash\r\necho a\r\n")
    assert run("lint", "run.sh", cwd=tmp_path).returncode == 3  # nothing to check
    script.write_bytes(f"#!/bin/bash\n# serve\r\n{SERVER} --model-path m\n".encode())
    assert linted("run.sh", tmp_path, "--select", "SPL016")[1] == []  # a comment may end anyhow
    fenced = f"```bash\r\n{text}```\r\n"
    compose = f"services:\r\n  a:\r\n    image: i\r\n    command: {SERVER} --model-path m\r\n"
    for name, document in (("x.md", fenced), ("x.yaml", compose), ("run.sh.example", text)):
        (tmp_path / name).write_bytes(document.encode())
        assert linted(name, tmp_path, "--select", "SPL016") == (0, []), name


@pytest.mark.thorough
def test_what_bash_cannot_parse_hides_nothing_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "log.sh").write_text(
        "[2026-11-22 10:00:00] server_args=ServerArgs(model_path='x', api_key='sk-live-0000')\n"
        f"{SERVER} --model-path b --nope 2\n"
    )
    code, found = linted("log.sh", tmp_path, "--select", "SPL000,SPL001")
    assert code == 2
    assert found == [("SPL000", "log.sh", 1), ("SPL001", "log.sh", 2)]
    (tmp_path / "if.sh").write_text(
        f"#!/bin/bash\nif true; then\n{SERVER} --model-path b --nope 2\n"
    )
    code, found = linted("if.sh", tmp_path, "--select", "SPL000,SPL001")
    assert code == 2
    assert found == [("SPL000", "if.sh", 2), ("SPL001", "if.sh", 3)]
    assert run("import", "if.sh", cwd=tmp_path).returncode == 2
    (tmp_path / "log.md").write_text(f"```bash\n{SERVER} --model-path b (or c)\n```\n")
    assert linted("log.md", tmp_path, "--select", "SPL000") == (0, [])


@pytest.mark.thorough
def test_a_prompt_in_a_script_is_no_command(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n$ {SERVER} --model-path x/y --cuda-graph-max-bs 8\n"
    (tmp_path / "run.sh").write_text(text)
    code, found = linted("run.sh", tmp_path, "--select", "SPL016,SPL002")
    assert code == 1
    assert ("SPL016", "run.sh", 2) in found
    imported = run("import", "run.sh", cwd=tmp_path)
    assert imported.returncode == 1 and "remove the terminal prompt `$`" in imported.stderr
    assert run("migrate", "run.sh", "--to", "0.5.23", cwd=tmp_path).returncode == 1
    assert (tmp_path / "run.sh").read_text() == text
    (tmp_path / "x.md").write_text(f"```bash\n$ {SERVER} --model-path x/y\n```\n")
    assert linted("x.md", tmp_path, "--select", "SPL016") == (0, [])
