"""`--config FILE` counts from where the script is when it starts the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.deployments.sources.files import read_file

SERVER = "python3 -m sglang.launch_server --model-path m --config server.yaml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file beside the script, in a directory, and in one below it."""
    for name in ("", "deploy", "deploy/inner", "other"):
        (tmp_path / "work" / name).mkdir(parents=True, exist_ok=True)
        text = f"served-model-name: {Path(name).name or 'beside'}\n"
        (tmp_path / "work" / name / "server.yaml").write_text(text)
    (tmp_path / "server.yaml").write_text("served-model-name: above\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "work"


def read(folder: Path, script: str) -> str:
    """The word that tells the file that is read, else why there is none."""
    (folder / "run.sh").write_text(script)
    (found,) = read_file(folder / "run.sh").invocations
    assert found.config is not None
    text = found.config.text
    return text.partition(": ")[2].strip() if text is not None else str(found.config.why)


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        (SERVER, "beside"),
        (f"cd deploy\n{SERVER}", "deploy"),
        (f"cd deploy && {SERVER}", "deploy"),
        (f"cd -- 'deploy' || exit 1\n{SERVER}", "deploy"),
        (f"D=deploy\ncd $D\ncd inner\n{SERVER}", "inner"),
        (f"cd deploy; cd ..\n{SERVER}", "beside"),
        (f"pushd deploy > /dev/null\n{SERVER}", "deploy"),
        (f"(cd deploy; ls)\n{SERVER}", "beside"),
        (f"(cd deploy; {SERVER})", "deploy"),
        (f"go() {{ cd deploy; }}\ngo\n{SERVER}", "deploy"),
        (f"bash -c 'cd deploy && {SERVER}'", "deploy"),
        (f"cd deploy\nbash -c '{SERVER}'", "deploy"),
        (f"cd deploy\nbash <<EOF\n{SERVER}\nEOF\n", "deploy"),
        (f'cd "$(dirname "$0")"\n{SERVER}', "beside"),
        (f'cd "$(dirname "$0")/deploy"\n{SERVER}', "deploy"),
        (f'cd "$(dirname "${{BASH_SOURCE[0]}}")"\ncd other\n{SERVER}', "other"),
        (f"cd /workspace\n{SERVER}", "beside"),
        (f"cd nowhere\n{SERVER}", "no such file here"),
        (f"cd ../..\n{SERVER}", "no such file here"),
        # where nobody knows, what stands beside the script is looked for, as without a `cd`
        (f"cd $ELSEWHERE\n{SERVER}", "beside"),
        (f"cd\n{SERVER}", "beside"),
        (f"cd deploy\ncd -\n{SERVER}", "beside"),
        (f"if [ -n \"$X\" ]; then cd deploy; fi\n{SERVER}", "beside"),
    ],
)  # fmt: skip
def test_a_literal_cd_counts(folder: Path, script: str, wanted: str) -> None:
    assert read(folder, script) == wanted


def test_nothing_outside_is_read(folder: Path) -> None:
    secret = folder.parent.parent / "elsewhere"
    secret.mkdir()
    (secret / "server.yaml").write_text("api-key: x\n")
    (folder / "link").symlink_to(secret)
    for where in ("../../elsewhere", "link", str(secret)):
        said = read(folder, f"cd {where}\n{SERVER}\n")
        outside = "it is outside the checked directories"
        assert said == (outside if where != str(secret) else "beside"), where


def test_no_variable_of_the_script_is_made_of_it(folder: Path) -> None:
    (folder / "run.sh").write_text(f"cd deploy\n{SERVER} --served-model-name $PWD\n")
    (found,) = read_file(folder / "run.sh").invocations
    assert found.words[-1].text == "$PWD" and not found.words[-1].evaluated
    assert dict(found.env) == {} and found.directory == "deploy"
