"""docs/rules/: every rule and notice has a page, every page says what it must, and where from."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch.app.verbs.rules import explained
from speclaunch.checks.rules.interface import Page, Rule, page
from speclaunch.checks.rules.registry import FILE_CODES, FileCode
from speclaunch.checks.rules.table import RULES
from speclaunch.core.resources import rule_pages_dir
from tests.support.loops import over
from tests.support.program import run

SECTIONS = ["What it does", "Why it matters", "Example", "Use instead", "Sources"]
SEEN = "Seen on the engine"
"""What tools/load_evidence.py writes, right before the sources."""
EVIDENCE = (
    r"\d+\.\d+\.\d+\S* \S+\.(py|cpp)",  # a file of the engine in a version
    r"of each release",
    r"(issue|pull request)s? #\d+",
    r"^(slime|Hugging Face transformers|sglang server arguments|sgl-kernel|Python's argparse|Kubernetes|Compose|NCCL)\b",
)
"""What counts as a source: an engine file and its version, an issue, a document."""


FACTS = "checkpoints whose facts no index has"
OTHERS = "a part of a manifest or of several files"
WITHOUT_A_FINDING = {
    **dict.fromkeys(
        ["SPL244", "SPL414", "SPL417", "SPL609", "SPL610", "SPL611", "SPL614", "SPL624", "SPL907"],
        FACTS,
    ),
    **dict.fromkeys((f"SPL{number}" for number in range(951, 961)), FACTS),
    **dict.fromkeys(["SPL018", "SPL827", "SPL828", "SPL832"], OTHERS),
    **dict.fromkeys((f"SPL{number}" for number in range(850, 886)), OTHERS),
    "SPL090": "an engine that has to be installed",
}
"""Pages whose example cannot be linted as it is, with what it lacks."""


def test_there_is_one_page_a_rule_and_none_more() -> None:
    codes = [rule.code for rule in RULES] + [notice.code for notice in FILE_CODES]
    assert sorted(path.stem for path in rule_pages_dir().glob("SPL*.md")) == sorted(codes)


@over([*RULES, *FILE_CODES], lambda rule: rule.code)
def test_a_page_has_its_title_and_its_sections(rule: Rule | FileCode) -> None:
    found = page(rule.code)
    assert found.title == f"{rule.code} {rule.name}"
    text = (rule_pages_dir() / f"{rule.code}.md").read_text(encoding="utf-8")
    assert text == f"# {found.title}\n\n{found.summary}.\n\n{found.body}"
    assert "\n" not in found.summary
    sections = re.findall(r"^## (.+)$", found.body, re.M)
    if isinstance(rule, Rule):
        assert [one for one in sections if one != SEEN] == SECTIONS
        assert sections.index(SEEN) == len(SECTIONS) - 1 if SEEN in sections else True
    else:  # what lint says of a file has no source in the engine, and sometimes no example
        assert sections == SECTIONS[: len(sections)]
    assert text.endswith("\n")
    assert max(map(len, text.splitlines())) <= 100
    assert "TODO" not in text
    assert "**Severity:**" not in text, "the rule knows it: it is not written here again"


@over(RULES, lambda rule: rule.code)
def test_a_page_names_its_sources(rule: Rule) -> None:
    sources = page(rule.code).sources
    assert any(re.search(kind, source) for kind in EVIDENCE for source in sources), sources
    assert len(sources) == len(set(sources))
    assert not [source for source in sources if source.endswith(".") or source != source.strip()]


def test_the_source_is_the_first_without_its_remark() -> None:
    def source(listed: str) -> str:
        return Page("SPL999 x", "X", f"## What it does\nX.\n\n## Sources\n{listed}").source

    assert source("- sglang 0.5.23 a.py:1\n- sglang 0.4.6 b.py\n") == "sglang 0.5.23 a.py:1"
    assert source("- sglang 0.5.23 a.py:1 (`said (so)`,\n  twice)\n") == "sglang 0.5.23 a.py:1"
    assert source("- sglang issue\n  #1234.\n") == "sglang issue #1234"
    assert source("") == ""


def test_explained_has_what_the_rule_knows_above_the_text() -> None:
    rule = next(rule for rule in RULES if rule.code == "SPL239")
    above, _, below = explained(rule).partition("\n## What it does\n")
    assert above == (
        "# SPL239 cpu-graph\n\nCPU graphs with speculation.\n\n"
        "**Severity:** error  \n**Algorithms:** any  \n**Engine versions:** `>=0.5.2`\n"
    )
    assert below == page("SPL239").body.removeprefix("## What it does\n")


@pytest.mark.thorough
def test_an_example_has_the_finding_and_its_replacement_does_not(tmp_path: Path) -> None:
    unread: set[str] = set()
    for rule in RULES:
        for section in ("Example", "Use instead"):
            after = page(rule.code).body.partition(f"## {section}\n")[2].partition("\n## ")[0]
            block = re.search(r"```(yaml|bash)\n(.*?)```", after, re.S)
            if block is not None and rule.code not in WITHOUT_A_FINDING:
                folder = tmp_path / rule.code / section
                folder.mkdir(parents=True)
                (folder / f"x.{block[1].replace('bash', 'sh')}").write_text(block[2])
                release = re.search(r"# on SGLang (\d[\d.]*\d(?:\.post\d)?)", block[2])
                stated = "" if release is None else f'engine = "{release[1]}"\n'
                (folder / "speclaunch.toml").write_text(stated)
                if section == "Example":
                    unread.add(rule.code)
    report = json.loads(run("lint", ".", "--output-format", "json", cwd=tmp_path).stdout)
    wrong = []
    for file in report["files"]:
        code, section, _ = file["path"].split("/")
        unread.discard(code)
        codes = {finding["code"] for finding in file["findings"]}
        if (code in codes) != (section == "Example") or "SPL000" in codes:
            wrong.append(f"{code} {section}: {' '.join(sorted(codes))}")
    assert not wrong + sorted(unread)


@pytest.mark.thorough
def test_no_page_is_read_before_it_is_asked_for() -> None:
    code = (
        "from pathlib import Path\n"
        "Path.read_text, read = (lambda *_, **__: 1 / 0), Path.read_text\n"
        "from speclaunch.checks.rules.table import RULES\n"
        "rules = RULES\n"
        "Path.read_text = read\n"
        "assert rules[0].summary\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
