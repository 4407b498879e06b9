"""The reader of validators, on small validators whose answer can be worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import refusals as tool  # noqa: E402
from refusal_reading.gather import Gathered, add, decode, encode, remove  # noqa: E402

from speclaunch.deployments.sources.requests import from_words  # noqa: E402
from speclaunch.engine.facts.facts import Facts  # noqa: E402
from speclaunch.engine.facts.hardware import declare  # noqa: E402
from speclaunch.engine.plan.plan import Plan  # noqa: E402
from speclaunch.engine.plan.refusals import ConditionEvaluator  # noqa: E402
from speclaunch.engine.releases.catalogue import load  # noqa: E402

VERSION = "0.5.23"


def release(folder: Path, handlers: str, check: str = "pass", more: str = "") -> Path:
    """A release whose `__post_init__` is `handlers`, and `check_server_args` is `check`."""
    package = folder / "sglang" / "srt"
    package.mkdir(parents=True, exist_ok=True)
    body = indent(dedent(handlers).strip(), "        ")
    checked = indent(dedent(check).strip(), "        ")
    (package / "server_args.py").write_text(
        "import json\nimport os\n\n\n"
        + dedent(more)
        + "\n\nclass ServerArgs:\n"
        + "    page_size: int = None\n    tp_size: int = 1\n    dp_size: int = 1\n"
        + "    quantization: str = None\n    device: str = None\n    kept: bool = False\n"
        + "    enable_lora: bool = None\n    lora_paths: list = None\n\n"
        + f"    def __post_init__(self):\n{body}\n\n"
        + f"    def check_server_args(self):\n{checked}\n"
    )
    return folder


def said(folder: Path, words: str, gpu: str | None = None) -> list[str]:
    """The messages of the rows that hold."""
    found = Gathered()
    add(found, VERSION, folder)
    hardware = declare(gpu) if gpu else None
    request = from_words(tuple(f"--model-path m {words}".split()), {}, load(VERSION))
    evaluator = ConditionEvaluator(found.store.nodes, Plan(request, Facts(None, None, hardware)))
    return sorted(evaluator.text(key[1]) for key in found.rows if evaluator.holds(key[0]))


SHAPES = {
    "a pair": ("if self.tp_size > 1 and not self.device: raise ValueError('E')", "--tp-size 2", ""),
    "assert": ("assert self.page_size % 16 == 0, 'E'", "--page-size 8", "--page-size 32"),
    "choices": (
        "if self.quantization not in (None, 'fp8'): raise ValueError('E')",
        "--quantization awq",
        "--quantization fp8",
    ),
    "nested": (
        """
        if self.tp_size > 1:
            if self.dp_size > 1:
                raise ValueError('E')
        """,
        "--tp-size 2 --dp-size 2",
        "--tp-size 2",
    ),
    "otherwise": (
        """
        if self.tp_size == 1:
            pass
        elif self.dp_size == 1:
            raise ValueError('E')
        """,
        "--tp-size 2",
        "--tp-size 2 --dp-size 2",
    ),
    "an early return": (
        """
        self.early()
        def early(self):
            if self.tp_size == 1:
                return
            raise ValueError('E')
        """,
        "--tp-size 2",
        "--tp-size 1",
    ),
    "a helper": ("if wide(self.tp_size): raise ValueError('E')", "--tp-size 9", "--tp-size 8"),
    "a list that is filled": (
        """
        wrong = []
        if self.tp_size > 1: wrong.append('tp')
        if self.dp_size > 1: wrong.append('dp')
        if wrong: raise ValueError('E')
        """,
        "--dp-size 2",
        "",
    ),
    "any": (
        "if any(x > 4 for x in (self.tp_size, self.dp_size)): raise ValueError('E')",
        "--dp-size 5",
        "--dp-size 4",
    ),
    "a value that was filled in": (
        """
        if self.page_size is None:
            self.page_size = 64 if self.tp_size > 1 else 1
        if self.page_size == 64: raise ValueError('E')
        """,
        "--tp-size 2",
        "--tp-size 2 --page-size 1",
    ),
    "a value at its time": (
        """
        before = self.page_size
        self.page_size = 1
        if before == 8: raise ValueError('E')
        """,
        "--page-size 8",
        "--page-size 1",
    ),
    "a loop over literals": (
        """
        for name in ('tp_size', 'dp_size'):
            if getattr(self, name) > 4: raise ValueError('E')
        """,
        "--dp-size 5",
        "--tp-size 4",
    ),
}
HELPERS = "def wide(size):\n    return size > 8\n"


def shaped(text: str) -> tuple[str, str]:
    """Handlers, and what the class has beside them."""
    handlers, _, method = dedent(text).partition("def ")
    return handlers, f"def {method}" if method else ""


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_read(name: str, tmp_path: Path) -> None:
    text, refused, accepted = SHAPES[name]
    handlers, method = shaped(text)
    check = f"pass\n\n{method}" if method else "pass"
    folder = release(tmp_path, handlers, check, HELPERS)
    if method:  # beside check_server_args, not in it
        path = folder / "sglang" / "srt" / "server_args.py"
        path.write_text(path.read_text().replace("        def early", "    def early"))
    assert said(folder, refused) == ["E"], name
    assert said(folder, accepted) == [], name


UNREAD = {
    "a library": "x = json.loads('1')\nif x and self.tp_size > 1: raise ValueError('E')",
    "a try": """
        try:
            if self.tp_size > 1: raise ValueError('E')
        except ValueError:
            pass
        """,
    "a field that something unknown writes": """
        helper.adjust(self)
        if self.tp_size > 1: raise ValueError('E')
        """,
    "a loop that may return": """
        for x in os.listdir('.'):
            if x: return
        if self.tp_size > 1: raise ValueError('E')
        """,
    "a field that is set by any name": """
        setattr(self, os.getcwd(), 1)
        if self.tp_size > 1: raise ValueError('E')
        """,
    "a list that is changed in its place": """
        self.lora_paths = []
        for x in os.listdir('.'):
            self.lora_paths.append(x)
        if not self.lora_paths and self.tp_size > 1: raise ValueError('E')
        """,
    "written in a loop": """
        for x in os.listdir('.'):
            self.tp_size = 2
        if self.tp_size > 1: raise ValueError('E')
        """,
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_cannot_be_read_says_nothing(name: str, tmp_path: Path) -> None:
    folder = release(tmp_path, UNREAD[name], more="import helper\n")
    assert said(folder, "--tp-size 2") == []


def test_a_fact_of_the_machine(tmp_path: Path) -> None:
    more = "from sglang.srt.utils import is_cuda\n"
    folder = release(
        tmp_path, "if not is_cuda() and self.tp_size > 1: raise ValueError('E')", more=more
    )
    assert said(folder, "--tp-size 2") == []
    assert said(folder, "--tp-size 2", "cpu") == ["E"]
    assert said(folder, "--tp-size 2", "h100:2") == []


def test_a_message_has_its_values(tmp_path: Path) -> None:
    folder = release(tmp_path, "assert self.tp_size < 3, f'got {self.tp_size} of {self.device!r}'")
    assert said(folder, "--tp-size 4 --device cuda") == ["got 4 of 'cuda'"]


def test_the_arguments_that_must_be_written(tmp_path: Path) -> None:
    folder = release(tmp_path, "if self.tp_size > 1 and self.dp_size: raise ValueError('E')")
    found = Gathered()
    add(found, VERSION, folder)
    assert list(found.by.values()) == [{"tp_size"}]


def test_releases_share_what_is_the_same_and_can_be_taken_out(tmp_path: Path) -> None:
    old = release(tmp_path / "old", "assert self.tp_size < 3, 'E'")
    new = release(
        tmp_path / "new", "pass\nassert self.tp_size < 3, 'E'", "assert self.dp_size, 'F'"
    )
    found = Gathered()
    add(found, "0.5.22", old)
    before = encode(found)
    add(found, "0.5.23", new)
    assert len(found.rows) == 2
    assert sorted(len(places) for places in found.rows.values()) == [1, 2]
    again = decode(encode(found))
    assert encode(again) == encode(found)
    remove(again, "0.5.23")
    assert encode(again) == before


@pytest.mark.thorough
def test_the_stored_file_is_what_it_encodes_to() -> None:
    text = tool.OUTPUT.read_text(encoding="utf-8")
    assert encode(decode(text)) == text


@pytest.mark.thorough
def test_the_report_is_of_the_same_releases() -> None:
    found = tool.stored()
    assert list(found.unread) == found.versions
    for version, said_of in found.unread.items():
        rows = {(key[3], line) for key, at in found.rows.items() for v, line in at if v == version}
        assert said_of["kept"] == len(rows)
        assert said_of["kept"] + len(said_of["left"]) == said_of["reached"]
