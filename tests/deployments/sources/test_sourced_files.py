"""Files that a script reads with `source`: their values, functions, and what stays unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.deployments.sources.files import read_file, read_shell
from speclaunch.deployments.sources.interface import Word
from tests.support.deployments.sources.helpers import SERVER, only
from tests.support.loops import each

OWN = [
    '"$(dirname "$0")/{}"',
    "$(dirname $0)/{}",
    '"${{0%/*}}/{}"',
    '"$(dirname -- "${{BASH_SOURCE[0]}}")/{}"',
    '"$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)/{}"',
    '"$(cd -- "$(dirname -- "${{BASH_SOURCE[0]:-$0}}")" &> /dev/null && pwd)/{}"',
    '"$( cd "$( dirname "$BASH_SOURCE" )" >/dev/null 2>&1 || exit 1; pwd -P )/{}"',
    '"$(dirname "$(readlink -f "$0")")/{}"',
    '"$(dirname "$(realpath "${{BASH_SOURCE}}")")/{}"',
    '"$(cd "$(dirname "$0")"/lib/.. && pwd)/{}"',
    "./{}",
    "{}",
]
"""Words that name a file next to the script."""
D = 'D="$(cd "$(dirname "$0")" && pwd)"\n'
UP = 'R="$(dirname "$D")"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the script, with a neighbor, one below it and one above it."""
    inner = tmp_path / "repo" / "scripts"
    (inner / "lib").mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (inner / "c.env").write_text("TP=4\nM=${M:-big}\nA=(--a 1)\n")
    (inner / "lib" / "x.sh").write_text(
        'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n. "$HERE/y.sh"\n'
        f'start() {{ {SERVER} --tp $1; }}\n[ -n "$DONE" ] && return 0\n'
    )
    (inner / "lib" / "y.sh").write_text("TP=5\n")
    (tmp_path / "repo" / "up.sh").write_text("TP=6\n")
    (tmp_path / "out.sh").write_text("TP=7\n")
    (inner / "link.sh").symlink_to(tmp_path / "out.sh")
    monkeypatch.chdir(tmp_path / "repo")
    return inner


def words(folder: Path, script: str) -> tuple[Word, ...]:
    (folder / "run.sh").write_text(script)
    return only(read_file(folder / "run.sh")).words


READ = [
    *((f"source {word.format('c.env')}", "4") for word in OWN),
    (f'{D}if [ -f "$D/c.env" ]; then source "$D/c.env"; fi', "4"),
    (f'{D}if [ -f "$D/no.env" ]; then . "$D/no.env"; elif [[ -r "$D/c.env" ]]; then . "$D/c.env"; fi', "4"),
    (f'{D}[ ! -f "$D/c.env" ] || . "$D/c.env"', "4"),
    ("[ -f scripts/c.env ] && . scripts/c.env", "4"),
    ('cd "$(dirname "$0")"\nset -a; source c.env; set +a', "4"),
    ("load() { source ./c.env; }\nload", "4"),
    ("source ./c.env\nTP=${TP:-8}", "4"),
    ("TP=\nsource ./c.env\nTP=${TP:-8}", "4"),
    ("source '/work{x}space/scripts/c.env'", "4"),
    ("source ./c.env; TP=$M", "big"),
    ("M=small; source ./c.env; TP=$M", "small"),
    (f'{D}source "$D/lib/x.sh"', "5"),
    (f'{D}source "$D/lib/x.sh"; . "$HERE/../c.env"', "4"),
    (f'{D}{UP}source "$R/up.sh"', "6"),
    ('source "$(dirname "$0")/../up.sh"', "6"),
]  # fmt: skip


def test_a_value_of_a_neighbor(folder: Path) -> None:
    def check(case: tuple[str, str]) -> None:
        word = words(folder, f"{case[0]}\n{SERVER} --tp $TP\n")[-1]
        assert (word.text, word.evaluated, word.condition) == (case[1], True, None)
        assert word.place.line == f"{case[0]}\n".count("\n") + 1
        assert case[1] == "small" or "read from " in str(word.why), word.why

    each(READ, check, str)


UNREAD = [
    "source $X/c.env",
    'source "$(dirname "$0")/link.sh"',
    'source "$(dirname "$0")/../../out.sh"',
    'source "$(dirname "$0")/no.sh"',
    "cd $X; source c.env",
    "[ -n $X ] && D=/x/\nsource ${D}c.env",
    "source c.env 1",
    "source /workspace/no.env",
    'bash -c \'source "$(dirname "$0")/c.env"\'',
]


def test_an_unreadable_neighbor(folder: Path) -> None:
    def check(case: str) -> None:
        assert not words(folder, f"{case}\n{SERVER} --tp $TP\n")[-1].evaluated
        word = words(folder, f"TP=\n{case}\n{SERVER} --tp ${{TP:-8}}\n")[-1]
        assert (word.text, word.evaluated) == ("8", True)
        assert "source" not in case[:9] or "unless" in str(word.why), word.why

    each(UNREAD, check, str)


def test_arrays_and_functions_of_a_neighbor(folder: Path) -> None:
    found = words(folder, f'source ./c.env\n{SERVER} "${{A[@]}}" --end\n')
    assert [(word.text, word.place.line) for word in found] == [("--a", 2), ("1", 2), ("--end", 2)]
    found = words(folder, f"{D}. $D/lib/x.sh\nstart 3\n")
    assert [word.text for word in found] == ["--tp", "3"]


def test_files_that_read_each_other(folder: Path) -> None:
    (folder / "c.env").write_text("TP=4\n. ./c.env\n. ./c.env\n. ./lib/x.sh\n" + "x=1\n" * 500)
    assert words(folder, f"{D}source ./c.env\n{SERVER} --tp 2\n")[-1].text == "2"
    (folder / "c.env").write_text("TP=4 #" + "x" * 70_000)
    assert not words(folder, f"source ./c.env\n{SERVER} --tp $TP\n")[-1].evaluated
    (folder / "c.env").write_text("TP=" + "$(" * 100)
    assert not words(folder, f"source ./c.env\n{SERVER} --tp $TP\n")[-1].evaluated


def test_a_script_in_a_document_has_no_neighbors(folder: Path) -> None:
    script = f"source c.env\n{SERVER} --tp $TP\n"
    reading = read_shell(script, str(folder / "run.sh.example"))
    assert not only(reading).words[-1].evaluated
