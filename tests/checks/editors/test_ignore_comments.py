"""The comment that an editor offers is a comment: nothing else of the document changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from lsprotocol.types import PositionEncodingKind
from pygls.workspace import PositionCodec

from speclaunch.checks.editors.answers import actions, diagnostics
from speclaunch.checks.editors.document import (
    CheckedDocument,
    DocumentPositions,
    EditorSettings,
    check_document,
)

COMMAND = "python3 -m sglang.launch_server --model-path m --tp-sise 2"
SAID = "speclaunch: ignore[SPL001] TODO: why"
FILE = SAID.replace("ignore[", "ignore-file[")


def offered(folder: Path, name: str, text: str) -> str | None:
    """The text after the comment for its SPL001, checked again; None where none is offered."""
    path = str(folder / name)

    def check(new: str) -> CheckedDocument:
        return check_document(path, new, {path: new.encode()}, EditorSettings())

    checked = check(text)
    positions = DocumentPositions(text, PositionCodec(PositionEncodingKind.Utf32))
    asked = [one for one in diagnostics(checked, positions) if one.code == "SPL001"]
    assert asked, [one.finding.code for one in checked.found]
    found = actions(checked, asked[:1], positions, "file:///x", 1, check, {path: text.encode()})
    edits = [
        edit
        for action in found
        if action.title.startswith("Ignore") and action.edit and action.edit.document_changes
        for change in action.edit.document_changes
        for edit in change.edits  # type: ignore[union-attr]
    ]
    if not edits:
        return None
    (edit,) = edits
    start = edit.range.start  # type: ignore[union-attr]
    at = len("".join(text.splitlines(keepends=True)[: start.line])) + start.character
    after = text[:at] + edit.new_text + text[at:]  # type: ignore[union-attr]
    assert "SPL001" not in {one.finding.code for one in check(after).found}
    return after


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: a
    image: sglang
    command: [bash, -c]
    args:
"""


@pytest.mark.thorough
def test_folded_scripts_of_kubernetes_gain_no_word(tmp_path: Path) -> None:
    text = f"{POD}    - >-\n      {COMMAND.replace(' --tp', chr(10) + '      --tp')}\n"
    after = offered(tmp_path, "pod.yaml", text)
    assert after is None or yaml.safe_load(after) == yaml.safe_load(text)
    assert after is not None and after.startswith(f"# {FILE}")


def test_folded_commands_of_compose_gain_no_word(tmp_path: Path) -> None:
    command = COMMAND.replace(" --", "\n      --")
    text = f"services:\n  a:\n    image: sglang\n    command: >\n      {command}\n"
    after = offered(tmp_path, "compose.yaml", text)
    assert after is None or yaml.safe_load(after) == yaml.safe_load(text)
    assert after is not None and SAID.replace("ignore", "ignore-file") in after


@pytest.mark.thorough
def test_a_literal_script_gains_a_comment_and_nothing_else(tmp_path: Path) -> None:
    text = f"{POD}    - |\n      set -e\n      {COMMAND} \\\n        --host 0.0.0.0\n"
    after = offered(tmp_path, "pod.yaml", text)
    assert after == text.replace("python3", f"# {SAID}\n      python3")


@pytest.mark.thorough
def test_a_tag_that_only_the_tool_knows_is_no_obstacle(tmp_path: Path) -> None:
    text = f"serve:\n  before_script:\n  - !reference [.setup, script]\n  script:\n  - {COMMAND}\n"
    after = offered(tmp_path, ".gitlab-ci.yml", text)
    assert after == text.replace("2\n", f"2  # {SAID}\n")


@pytest.mark.thorough
@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_quoted_word_over_two_lines_gains_nothing(tmp_path: Path, quote: str) -> None:
    command = COMMAND.replace(" --tp", "\n      --tp")
    text = f"serve:\n  script:\n  - {quote}{command}{quote}\n"
    after = offered(tmp_path, ".gitlab-ci.yml", text)
    assert after is not None and yaml.safe_load(after) == yaml.safe_load(text)


def test_inline_code_of_a_document_gains_no_text(tmp_path: Path) -> None:
    text = f"# Serving\n\nRun `{COMMAND}` and wait.\n"
    after = offered(tmp_path, "README.md", text)
    assert after == text.replace("wait.", f"wait.  <!-- {SAID} -->")


def test_fenced_code_of_a_document_gains_a_comment(tmp_path: Path) -> None:
    text = f"# Serving\n\n```bash\n{COMMAND}\n```\n"
    assert offered(tmp_path, "README.md", text) == text.replace("2\n", f"2  # {SAID}\n")
