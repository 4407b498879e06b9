"""`make docs`: the site builds, strictly and without the network, and has a page for every rule."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from speclaunch.checks.advisory import all_advisories
from speclaunch.checks.rules.registry import FILE_CODES
from speclaunch.checks.rules.table import RULES
from speclaunch.core.resources import DOCS_URL, DOCS_URL_VARIABLE
from speclaunch.deployments.targets.alerts import RUNBOOK

ROOT = Path(__file__).resolve().parents[2]
NO_NETWORK = """
import socket, sys
def refuse(*_): raise OSError("the build asks the network")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
sys.exit(cli())
"""


def built(into: Path, **env: str) -> Path:
    words = ["build", "--strict", "--quiet", "--config-file", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, *words, "--site-dir", str(into)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1", **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return into


@pytest.mark.thorough
def test_the_site(tmp_path: Path) -> None:
    """Strict: a dead link, a dead anchor, and a page that no navigation has are errors."""
    base = "https://docs.example.com/speclaunch"
    site = built(tmp_path / "site", **{DOCS_URL_VARIABLE: base})
    codes = [one.code for one in (*RULES, *FILE_CODES)]
    for code in codes:
        page = (site / "rules" / code / "index.html").read_text()
        assert f'<link rel="canonical" href="{base}/rules/{code}/"' in page
        assert "<strong>Severity:</strong>" in page
    for advisory in all_advisories():
        assert advisory.summary in (site / "advisories" / advisory.id / "index.html").read_text()
    runbooks = (site / "howto" / "monitor" / "index.html").read_text()
    for alert in re.findall(r"^### (\w+)$", (ROOT / "docs" / RUNBOOK).read_text(), re.MULTILINE):
        assert f'<h3 id="{alert.lower()}">' in runbooks  # the anchor of its `runbook_url`
    home = (site / "index.html").read_text()
    assert 'href="rules/"' in home
    for tag in ("<script", "<link", "<img"):  # nothing of the page itself is fetched from elsewhere
        for part in home.split(tag)[1:]:
            said = part.partition(">")[0]
            assert "http" not in said or "canonical" in said or base in said, said
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert {f"rules/{code}/" for code in codes} <= {one["location"] for one in found}


def test_its_address_is_set_in_one_place() -> None:
    assert "site_url" not in yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)
    assert DOCS_URL == "" or (DOCS_URL.startswith("https://") and DOCS_URL.endswith("/"))
