"""What is stood in for where there is no torch, as releases use it at the top of their modules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from speclaunch.checks.engine_check import engine_judge
from speclaunch.checks.engine_check.worker import light, torch_parts
from speclaunch.engine.facts.cpu_engine import REQUIREMENTS
from tests.support.loops import each

JUDGE = engine_judge.START.parent.parent
BEFORE = f"""
import copy, importlib.metadata, importlib.util, pickle, sys
sys.path.insert(0, {str(JUDGE)!r})
from worker import light
assert light.is_needed()
light.install()
import numpy as np
import torch
"""


EACH = f"""{BEFORE}
import os
for code in sys.argv[1:]:
    sys.stdout.flush()
    if os.fork() == 0:  # each finds the module as it was installed
        os.dup2(1, 2)
        exec(code, dict(globals()))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print("{{END}}", flush=True)
"""


def outputs(codes: Sequence[str]) -> list[str]:
    """What each script prints in an interpreter without packages."""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", EACH, *codes], capture_output=True, text=True
    )
    *found, left = done.stdout.split("{END}\n")
    assert not left and not done.stderr, done.stderr[-600:]
    return found


CASES = [
    ("print(torch.bfloat16, torch.float is torch.float32)", "torch.bfloat16 True"),
    ("print(isinstance(torch.half, torch.dtype), torch.int8.itemsize)", "True 1"),
    ("print(copy.deepcopy({1: torch.half}) == {1: torch.float16})", "True"),
    ("print(torch.finfo(torch.float8_e4m3fn).max, torch.iinfo(torch.int8).min)", "448.0 -128"),
    ("print(str(torch.device('cuda', 1)), torch.device('cuda:1').index)", "cuda:1 1"),
    ("print(torch.cuda.is_available(), torch.cuda.device_count())", "False 0"),
    ("print(torch.version.cuda, torch.version.hip)", "None None"),
    (
        "print([hasattr(torch, n) for n in ('cuda', 'xpu', 'npu', 'hpu', 'musa')])",
        "[True, True, False, False, False]",
    ),
    ("print(hasattr(torch.version, 'musa'), torch.backends.mps.is_available())", "False False"),
    ("print(hasattr(torch.ops, 'mine'), hasattr(torch.ops.mine, 'op'))", "True False"),
    (
        "l = torch.library.Library('mine', 'FRAGMENT'); l.define('op(Tensor x) -> Tensor')\n"
        "print(hasattr(torch.ops.mine, 'op'), hasattr(torch.ops.mine, 'other'))",
        "True False",
    ),
    (
        "@torch.library.custom_op('mine::op', mutates_args=())\ndef f(x: int) -> int: return x + 1\n"
        "@f.register_fake\ndef _(x): return x\nprint(f(1), hasattr(torch.ops.mine, 'op'))",
        "2 True",
    ),
    (
        "@torch.no_grad()\n@torch.compile(dynamic=True)\n@torch.jit.script\ndef f(x): return x\n"
        "with torch.inference_mode(): print(f(3))",
        "3",
    ),
    (
        "from abc import ABC\nclass M(torch.nn.Module, ABC):\n  def __init__(self, n):\n"
        "    super().__init__(); self.n = n\nprint(M(2).n, isinstance(M(1), torch.nn.Module))",
        "2 True",
    ),
    ("class P(torch.nn.Parameter): pass\nprint(issubclass(P, torch.Tensor))", "True"),
    ("print(isinstance(3, (torch.Tensor, np.ndarray)), torch.is_tensor(3))", "False False"),
    (
        "def f(x: torch.Tensor | None, y: 'np.ndarray' = None) -> torch.dtype: return x\nprint(f(1))",
        "1",
    ),
    ("print(importlib.metadata.version('torch'), torch.__version__)", "2.13.0+cpu 2.13.0+cpu"),
    ("print(importlib.util.find_spec('flashinfer'))", "None"),
    (
        "import torch.distributed as dist; print(dist.is_available(), dist.is_initialized())",
        "True False",
    ),
]


def test_it_is_as_torch_is_where_releases_look() -> None:
    found = outputs([code for code, _ in CASES])
    assert len(found) == len(CASES)

    def check(case: tuple[str, str, str]) -> None:
        code, expected, output = case
        assert output.strip() == expected, code

    cases = ((*case, output) for case, output in zip(CASES, found, strict=True))
    each(cases, check, lambda case: case[0])


def test_its_versions_are_the_cpu_engines() -> None:
    """What transformers asks of `importlib.metadata` decides which of its parts exist."""
    pinned = dict(
        line.lower().replace("_", "-").split("==")
        for line in REQUIREMENTS.read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    told = dict(text.split(" ") for text in light.PACKAGES.values() if text)
    assert told.pop("torch") == torch_parts.VERSION
    assert {name.lower().replace("_", "-"): version for name, version in told.items()} == {
        name.lower().replace("_", "-"): pinned[name.lower().replace("_", "-")] for name in told
    }


def test_a_judge_with_torch_has_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    code = f"import sys; sys.path[:0] = [{str(JUDGE)!r}, {str(tmp_path)!r}]\n"
    code += "from worker import light; print(light.is_needed())"
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
