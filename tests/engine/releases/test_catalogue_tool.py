"""``tools/catalogue.py`` on wheels that are made up here; nothing is fetched."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from speclaunch.engine.releases import catalogue

TOOLS = Path(__file__).resolve().parents[3] / "tools"
SERVER_ARGS = """class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True)
        parser.add_argument("--steps", type=int, default={default}, choices=[1, 2, 3])
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, writing to an empty data directory."""
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("catalogue_tool", TOOLS / "catalogue.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DATA", tmp_path / "data")
    monkeypatch.setattr(module, "_build", lambda *_: pytest.fail("nothing is held"))
    return module


def wheel(cache: Path, version: str, default: int) -> None:
    cache.mkdir(exist_ok=True)
    with zipfile.ZipFile(cache / f"sglang-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("sglang/version.py", f'__version__ = "{version}"\n')
        archive.writestr("sglang/srt/server_args.py", SERVER_ARGS.format(default=default))


def data(tool: ModuleType) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(tool.DATA.iterdir())}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    place = tmp_path / "wheels"
    for version, default in (("1.0", 1), ("1.1", 1), ("1.2", 2)):
        wheel(place, version, default)
    return place


@pytest.fixture
def filled(tool: ModuleType, cache: Path) -> ModuleType:
    records = tool._read("1.0", cache)
    tool.write({"1.0": records[1]}, {"1.0": records[2]})
    assert tool.main(["--cache", str(cache), "add", "1.2", "1.1"]) == 0
    return tool


def test_add_in_any_order_gives_the_same_bytes(filled: ModuleType, cache: Path) -> None:
    before = data(filled)
    assert filled.held() == ("1.0", "1.1", "1.2")
    assert filled.main(["--cache", str(cache), "add", "1.0"]) == 0
    assert data(filled) == before
    lines = before["arguments.json"].decode().splitlines()
    assert lines[3] == (
        '"--steps":[["1.0","1.1",{"type":"int","default":1,"choices":[1,2,3],"read":false}],'
        '["1.2",{"type":"int","default":2,"choices":[1,2,3],"read":false}]]'
    )
    assert json.loads(before["history.json"])["names"] == {
        "model": [["1.0"]],
        "model_path": [["1.0"]],
        "steps": [["1.0"]],
    }


def test_runs_of_a_name(tool: ModuleType) -> None:
    names = {"1": {"a"}, "2": {"a", "b"}, "3": {"b"}, "4": {"a"}}
    text = tool.history_text(list(names), {key: frozenset(found) for key, found in names.items()})
    assert json.loads(text)["names"] == {"a": [["1", "2"], ["4"]], "b": [["2", "3"]]}


def test_check(
    filled: ModuleType, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = {"aliases": [], "required": False, "src": "x:1"}
    model = {"dest": "model_path", "type": "str", "default": None, "choices": None}
    steps = {"dest": "steps", "type": "int", "default": 2, "choices": [3, 2, 1], **common}
    good = {
        "--model-path": {**model, "aliases": ["--model"], "required": True, "src": "x:1"},
        "--steps": steps,
    }
    dump = tmp_path / "flags.json"

    def check(flags: dict[str, object]) -> tuple[int, str]:
        dump.write_text(json.dumps({"1.2": flags}))
        capsys.readouterr()
        arguments = ["--cache", str(cache), "--jobs", "1", "check", "--against", str(dump)]
        return filled.main(arguments), capsys.readouterr().out

    assert check(good) == (0, "1.2: 2 arguments, 0 differences\n")
    code, output = check({**good, "--steps": {**steps, "default": 5}, "--gone": {"src": "y:2"}})
    assert code == 1
    assert "--steps default: ours 2, theirs 5 (sglang/srt/server_args.py:4)" in output
    assert "--gone exists: ours False, theirs True (y:2)" in output


def test_a_wheel_of_another_version(filled: ModuleType, cache: Path) -> None:
    (cache / "sglang-1.2-py3-none-any.whl").rename(cache / "sglang-1.3-py3-none-any.whl")
    with pytest.raises(SystemExit, match=r"1\.3 says that it is 1\.2"):
        filled.main(["--cache", str(cache), "add", "1.3"])


def test_the_lines_are_those_shipped(tool: ModuleType) -> None:
    assert set(tool.LINES) <= set(json.loads((catalogue.DATA / "versions.json").read_text()))
