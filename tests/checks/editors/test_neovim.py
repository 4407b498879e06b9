"""Once in a real editor: Neovim shows findings, tells of an argument, and applies a quick fix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checks.editors.editor import SERVER
from tests.checks.editors.test_server import FIXABLE


@pytest.mark.thorough
def test_neovim_shows_hovers_and_fixes(tmp_path: Path) -> None:
    nvim = shutil.which("nvim")
    if nvim is None:
        pytest.skip("nvim is not installed")
    (tmp_path / "r.yaml").write_text(FIXABLE)
    script = Path(__file__).with_name("neovim.lua")
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        **os.environ, "SERVER": json.dumps(SERVER), "PYTHONPATH": str(Path(__file__).parents[3]),
        **{f"XDG_{kind}_HOME": str(home) for kind in ("CONFIG", "DATA", "STATE", "CACHE")},
    }  # fmt: skip
    done = subprocess.run(
        [nvim, "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", f"luafile {script}"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    found = {name: json.loads(text) for name, text in said.items()}
    assert {"code": "SPL105", "line": 8, "column": 3} in found["diagnostics"]
    told = "\n".join(found["hover"])
    assert "speculative_num_draft_tokens" in told and "whole number" in told and "SPL105" in told
    assert any("Ignore SPL105" in title for title in found["offered"])
    assert "\n".join(found["text"]) + "\n" == FIXABLE.replace("tokens: 9", "tokens: 4")
