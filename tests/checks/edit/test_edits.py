from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.checks.edit.edits import (
    Change,
    Edit,
    Insertion,
    apply,
    diff,
    write_atomically,
    write_together,
)
from speclaunch.core.errors import InputError
from tests.support.loops import rows

SCRIPT = "#!/bin/sh\n# keep me\nserve \\\n  --old 1 \\\n  --gone 2 \\\n  --last 3\n"


@rows(
    "changes, expected",
    [
        ([Edit(4, 3, 5, "--new")], SCRIPT.replace("--old", "--new")),
        ([Edit(5, 3, 8, "")], SCRIPT.replace("  --gone 2 \\\n", "")),
        ([Edit(6, 3, 8, "")], SCRIPT.replace(" \\\n  --last 3", "")),
        (
            [Edit(5, 3, 8, ""), Edit(6, 3, 8, "")],
            SCRIPT.replace(" \\\n  --gone 2 \\\n  --last 3", ""),
        ),
        ([Insertion(3, "# why")], SCRIPT.replace("serve", "# why\nserve")),
        (
            [Insertion(4, "# a"), Insertion(4, "# b"), Edit(4, 3, 5, "--n")],
            SCRIPT.replace("  --old", "  # a\n  # b\n  --n"),
        ),
        ([], SCRIPT),
    ],
)
def test_only_what_was_asked_for_changes(changes: list[Change], expected: str) -> None:
    assert apply(SCRIPT, changes) == expected


def test_line_ends_stay() -> None:
    assert apply("a 1\r\nb", [Edit(2, 1, 1, "c"), Insertion(2, "# x")]) == "a 1\r\n# x\r\nc"


def test_overlapping_or_impossible_edits_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        apply("abcdef\n", [Edit(1, 1, 3, "x"), Edit(1, 2, 3, "y")])
    with pytest.raises(ValueError, match="shorter"):
        apply("abc\n", [Edit(1, 2, 9, "x")])


@pytest.mark.thorough
@given(st.lists(st.text("ab \\", min_size=1, max_size=6), max_size=6), st.data())
def test_a_diff_takes_the_old_text_to_the_new(lines: list[str], data: st.DataObject) -> None:
    import tempfile

    before = "\n".join(lines)
    changes: list[Change] = []
    for number, line in enumerate(before.splitlines(), 1):
        if line and data.draw(st.booleans()):
            changes.append(Edit(number, 1, 1, data.draw(st.sampled_from(["x", "yy"]))))
    after = apply(before, changes)
    patch = diff(before, after, "file")
    if before == after:
        assert patch == ""
        return
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "file").write_text(before)
        subprocess.run(
            ["git", "apply", "--unsafe-paths", "-"],
            input=patch,
            text=True,
            cwd=directory,
            check=True,
            capture_output=True,
        )
        assert (Path(directory) / "file").read_text() == after


def test_a_file_is_written_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("a\n")
    path.chmod(0o755)
    write_atomically(path, "b\n")
    assert path.read_text() == "b\n" and path.stat().st_mode & 0o777 == 0o755
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="cannot write"):
        write_atomically(tmp_path / "none" / "x", "c")


def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "a")
    assert os.read(reading, 9) == b"a" and pipe.is_fifo()
    os.close(reading)
    with pytest.raises(InputError, match="not a regular file"):
        write_together({pipe: "a"})
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]
    with pytest.raises(InputError, match="Is a directory"):
        write_atomically(tmp_path, "a")


def test_files_are_replaced_all_or_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.mkdir()  # cannot be replaced by a file
    (two / "x").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_together({one: "b", two: "b"})
    assert one.read_text() == "a" and sorted(tmp_path.iterdir()) == [one, two]
    write_together({one: "b", tmp_path / "three": "c"})
    assert one.read_text() == "b" and (tmp_path / "three").read_text() == "c"


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    path, outside = tmp_path / "in" / "one", tmp_path / "outside"
    path.parent.mkdir()
    path.write_text("a")
    outside.write_text("safe")
    path.with_name(f".one.{threading.get_native_id()}").symlink_to(outside)
    write_together({path: "b"})
    assert (path.read_text(), outside.read_text()) == ("b", "safe")
    assert list(path.parent.iterdir()) == [path]
