"""The shell reader sees what tree-sitter-bash sees: in generated scripts, and in 560 published ones.

The published ones are compared by `campaigns/shell_oracle.py`, which has to be given them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tree_sitter_bash")

from campaigns import shell_oracle

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "tests" / "published" / "shell_scripts.json"


WORDS = st.sampled_from(
    ["a", "--tp", "2", "x/y-z", "--b=c", "'q r'", '"s t"', 'u"v w"x', "'y'z", r"a\ b", r"\$c", '"d\\"e"',
     "$X", '"${Y:-1}"', '"$(date +%s)"', "é", "--host=0.0.0.0", "\\\n  --port"]
)  # fmt: skip
COMMANDS = st.builds(
    lambda name, words: " ".join([name, *words]),
    st.sampled_from(["python3", "echo", "ls", "FOO=1 run", "A=b C='d' go", "timeout"]),
    st.lists(WORDS, max_size=5),
)
REDIRECTED = st.builds(
    lambda command, redirect: command + redirect,
    COMMANDS,
    st.sampled_from(["", "", " > log", " 2>&1", " &> log", " >> 'a b'", " < in"]),
)
DOCUMENTS = st.builds(
    lambda name, quote, text: f"{name} <<{quote}END{quote}\n{text}\nEND",
    st.sampled_from(["cat", "bash", "tee f"]),
    st.sampled_from(["", "'"]),
    st.sampled_from(["x", "a $B c", "it's\n\n", '"']),
)
BLOCKS = st.recursive(
    st.one_of(REDIRECTED, DOCUMENTS, st.sampled_from(["V=1", "ARR=(a b 'c d')", "# a comment", ""])),
    lambda inner: st.one_of(
        st.builds("if {}; then\n{}\nelse\n{}\nfi".format, COMMANDS, inner, inner),
        st.builds("for i in 1 2; do\n{}\ntrue\ndone".format, inner),
        st.builds("while {}; do\n{}\ntrue\ndone".format, COMMANDS, inner),
        st.builds("case $1 in\n  a|b)\n{}\n;;\n  *) true ;;\nesac".format, inner),
        st.builds("f() {{\n{}\ntrue\n}}".format, inner),
        st.builds("(\n{}\ntrue\n)".format, inner),
        st.builds("{} && {} || {}".format, COMMANDS, COMMANDS, COMMANDS),
        st.builds("{} | {} &".format, COMMANDS, COMMANDS),
    ),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.thorough
@given(st.lists(BLOCKS, min_size=1, max_size=5))
def test_generated_scripts_are_seen_alike(blocks: list[str]) -> None:
    text = "#!/bin/bash\n" + "\n".join(blocks) + "\n"
    said, _, differences = shell_oracle.compare(text)
    if said != "not read by tree-sitter":
        assert said == "equal", (text, differences)


def test_a_difference_is_told() -> None:
    tool = shell_oracle
    mine, its = tool.ours("a b\n# c\n"), tool.theirs("a 'c'\n")
    assert [one.what for one in tool.differences(mine, its)] == ["words", "comment"]
    assert tool.compare("if [ a\n")[0] == "not read by tree-sitter"


def test_the_manifest_names_scripts_and_holds_none() -> None:
    manifest = json.loads(MANIFEST.read_text())
    assert len(manifest["files"]) >= 500
    for one in manifest["files"]:
        assert set(one) == {"repository", "commit", "path"}
        assert re.fullmatch(r"[0-9a-f]{40}", one["commit"])
    assert manifest["sums"]["equal"] >= 500
    assert "unread" not in manifest["sums"]
