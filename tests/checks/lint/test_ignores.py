from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from speclaunch.checks.lint.collect import Extent, complaints, read_ignores, unsuppressed
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.core.errors import Place
from tests.checks.lint.linting import ENGINE, GROUP, RECIPE, SERVER
from tests.checks.lint.linting import Place as Folder
from tests.support.loops import rows


def finding(code: str, line: int, path: str = "a.yaml") -> Finding:
    return Finding(code, "x", Severity.ERROR, "m", "", None, Place(path, line), "0.5.23")


def left(text: str, *found: Finding, commands: tuple[Extent, ...] = ()) -> list[str]:
    ignores = read_ignores(text, "a.yaml", commands)
    return [f"{f.code}:{f.place.line}" for f in unsuppressed(found, ignores)]


def said(text: str, *found: Finding, selected: Collection[str] | None = None) -> list[str]:
    ignores = read_ignores(text, "a.yaml")
    unsuppressed(found, ignores)
    found = complaints(ignores, "a.yaml", ENGINE, selected)
    return [f"{one.code} {one.message}" for one in found]


def test_at_the_end_of_a_line_it_holds_for_that_line() -> None:
    text = "a: 1  # speclaunch: ignore[SPL211] we know\nb: 2\n"
    assert left(text, finding("SPL211", 1), finding("SPL211", 2)) == ["SPL211:2"]


def test_on_its_own_line_it_holds_for_the_next_line_that_is_no_comment() -> None:
    text = "# speclaunch: ignore[SPL211] we know\n# more\n\na: 1\nb: 2\n"
    assert left(text, finding("SPL211", 4), finding("SPL211", 5)) == ["SPL211:5"]


def test_above_a_command_it_holds_for_the_whole_command() -> None:
    text = "# speclaunch: ignore[SPL2] we know\npython3 -m x \\\n  --a \\\n  --b\npython3\n"
    found = [finding("SPL211", line) for line in (2, 3, 4, 5)]
    assert left(text, *found, commands=(Extent(2, 4),)) == ["SPL211:5"]


def test_for_the_file() -> None:
    text = "a: 1\n# speclaunch: ignore-file[SPL211, SPL8] we know\n"
    found = [finding("SPL211", 1), finding("SPL801", 9), finding("SPL203", 1)]
    assert left(text, *found) == ["SPL203:1"]


def test_another_file_is_not_silenced() -> None:
    text = "# speclaunch: ignore-file[SPL211] we know\n"
    assert left(text, finding("SPL211", 1, "b.yaml")) == ["SPL211:1"]


def test_two_comments_for_one_finding_are_both_used() -> None:
    text = "# speclaunch: ignore-file[SPL211] all\na: 1  # speclaunch: ignore[SPL2] this\n"
    assert said(text, finding("SPL211", 2)) == []


@rows(
    "comment, complaint",
    [
        ("# speclaunch: ignore", "SPL092 the ignore comment has no code"),
        ("# speclaunch: ignore[]", "SPL092 the ignore comment has no code"),
        ("# speclaunch: ignore[SPL211]", "SPL092 the ignore comment has no reason"),
        ("# speclaunch: ignore[SPL999] x", "SPL092 unknown rule code SPL999"),
        ("# speclaunch: ignore[E501] x", "SPL092 unknown rule code E501"),
        (
            "# speclaunch: ignore[SPL203] x",
            "SPL091 no finding with the code SPL203 here",
        ),
    ],
)
def test_complaints(comment: str, complaint: str) -> None:
    assert said(f"a: 1  {comment}\n", finding("SPL211", 1)) == [complaint]


def test_nothing_is_called_unused_when_not_every_rule_was_asked() -> None:
    text = "a: 1  # speclaunch: ignore[SPL203] x\n"
    assert said(text, selected=["SPL211", "SPL091"]) == []
    assert said(text, selected=["SPL203", "SPL091"]) == [
        "SPL091 no finding with the code SPL203 here"
    ]
    assert said(text.replace("203", "2"), selected=["SPL203", "SPL091"]) == []  # SPL211 was not


def test_codes_in_small_letters_and_with_spaces() -> None:
    assert left("a: 1 #speclaunch:ignore[ spl211 ,spl203 ] x", finding("SPL211", 1)) == []


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0c"])
def test_lines_end_at_line_feeds_alone(end: str) -> None:
    text = f"# a{end}b\r\nhost: x  # speclaunch: ignore[SPL801] why\r\n"
    (ignore,) = read_ignores(text, "x.yaml")
    assert (ignore.place.line, ignore.lines, ignore.reason) == (2, range(2, 3), "why")


UNUSED = "# speclaunch: ignore[SPL702] we know\n"
USED = "# speclaunch: ignore[SPL001] we know\n"
WRONG = SERVER.format(model="m", more="--no-such 1")


def codes(folder: Folder, *words: str) -> list[str]:
    """The codes that are found, each finding once, in order."""
    words = words if "--engine" in words else ("--engine", ENGINE, *words)
    said = json.loads(folder.lint(*words, "--output-format", "json").out)
    found = {(f["path"], f["line"], f["code"]) for file in said["files"] for f in file["findings"]}
    return [code for _, _, code in sorted(found)]


FORMS = {
    "serve.sh": "{comment}{command}",
    "README.md": "# Serving\n\n```bash\n{comment}{command}```\n",
    "compose.yaml": "services:\n  a:\n    image: sglang:1\n    {comment}    command: {command}",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n"
    "  - name: a\n    image: sglang:1\n    command: [bash, -c]\n    args:\n    - |\n"
    "      {comment}      {command}",
}


FILE = "# speclaunch: ignore-file[SPL001] we know"
LOOKS = {
    "notes.sh": ("cat > notes.txt <<EOF\n{looks}\nEOF\n{command}", FILE),
    "said.sh": ("echo '{looks}'\n{command}", FILE),
    "start.py": ('import os\nX = """\n{looks}\n"""\nos.system("""{command}""")\n', FILE),
    "README.md": ("Write `{looks}`.\n\n```bash\n{command}```\n", FILE),
    "HEAD.md": ("{looks}\n\n```bash\n{command}```\n", FILE),
    "compose.yaml": ("x-note: '{looks}'\nservices:\n  a:\n    command: {command}", FILE),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOOKS)
def test_what_only_looks_like_a_comment_silences_nothing(place: Folder, name: str) -> None:
    """It is the text of a string, of prose, of a file that is written."""
    text, looks = LOOKS[name]
    place.write(f"looks/{name}", text.format(looks=looks, command=WRONG))
    assert codes(place, f"looks/{name}") == ["SPL001"]


@pytest.mark.thorough
def test_a_comment_in_prose_is_html(place: Folder) -> None:
    text = f"# Serving\n\n<!-- {USED[2:-1]} -->\n\n```bash\n{WRONG}```\n"
    place.write("README.md", text)
    assert codes(place, "README.md") == []
    place.write("README.md", f"<!-- {USED[2:-1].replace('ignore', 'ignore-file')} -->\n" + text)
    assert codes(place, "README.md") == []
    place.write("README.md", f"Run `{WRONG.strip()}` <!-- {USED[2:-1]} -->\n")
    assert codes(place, "README.md") == []
    place.write("README.md", text.replace(WRONG, WRONG.replace("--no-such 1", "")))
    assert codes(place, "README.md") == ["SPL091"]
    place.write("README.md", text.replace(" we know", ""))
    assert codes(place, "README.md") == ["SPL092"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("engines", [ENGINE, "0.5.8,0.5.18,0.5.23"])
def test_in_every_form_and_with_several_versions(place: Folder, name: str, engines: str) -> None:
    path = f"forms/{name}"
    for comment, wanted in (("# x\n", ["SPL001"]), (USED, []), (UNUSED, ["SPL001", "SPL091"])):
        place.write(path, FORMS[name].format(comment=comment, command=WRONG))
        assert sorted(codes(place, path, "--engine", engines)) == wanted, comment


@pytest.mark.thorough
def test_what_one_of_the_versions_needs_is_used(place: Folder) -> None:
    text = SERVER.format(model="m", more="--cuda-graph-max-bs 8")
    place.write("x.sh", "# speclaunch: ignore[SPL002] until 0.5.19\n" + text)
    for engines, wanted in (("0.5.18", ["SPL005", "SPL091"]), ("0.5.18,0.5.23", ["SPL005"])):
        assert sorted(codes(place, "x.sh", "--engine", engines)) == wanted


@pytest.mark.thorough
def test_with_rules_left_out_for_a_path(place: Folder) -> None:
    place.write("old/x.sh", USED.replace("SPL001", "SPL001, SPL702") + WRONG)
    place.write("speclaunch.toml", '[[overrides]]\npaths = "old/"\nignore = "SPL001"\n')
    assert codes(place, "old") == ["SPL091"]  # of SPL702; SPL001 was not asked
    place.write("speclaunch.toml", '[[overrides]]\npaths = "old/"\nignore = ["SPL0"]\n')
    assert codes(place, "old") == []  # SPL091 is left out itself
    assert codes(place, "old", "--no-config", "--ignore", "SPL091") == []


@pytest.mark.thorough
def test_with_a_baseline(place: Folder) -> None:
    place.write("x.sh", USED + WRONG)
    place.write("y.sh", UNUSED + WRONG)
    place.lint("x.sh", "y.sh", "--engine", ENGINE, "--write-baseline", "known.json")
    known = json.loads((place.folder / "known.json").read_text())["findings"]
    assert [(one["path"], one["code"]) for one in known] == [("y.sh", "SPL001"), ("y.sh", "SPL091")]
    assert codes(place, "x.sh", "y.sh", "--baseline", "known.json") == []
    place.write("x.sh", UNUSED.replace("702", "703") + USED + WRONG)
    assert codes(place, "x.sh", "y.sh", "--baseline", "known.json") == ["SPL091"]


@pytest.mark.thorough
def test_in_a_group(place: Folder) -> None:
    name = "conf/speculation/mine.yaml"
    (place.folder / ".git").mkdir()
    place.write("speclaunch.toml", 'config-dir = "conf"\n')
    text = RECIPE.format(name="a", engine=ENGINE, model="org/model", tp=1)
    place.write("serving/a.yaml", text)
    place.write("serving/b.yaml", text.replace("name: a", "name: b"))
    comment = "  # speclaunch: ignore[SPL101] a plugin adds it\n"
    other = "conf/serving/open.yaml"
    place.write(other, "# @package args\nhost: 0.0.0.0  # speclaunch: ignore[SPL801] closed\n")
    place.write(
        "conf/serving/odd.yaml", "# @package args\nport: 31000  # speclaunch: ignore[SPL801] x\n"
    )
    assert codes(place, "conf") == []  # no recipe chooses them
    place.write("serving/c.yaml", text.replace("speculation: mine", "override serving: open"))
    assert "SPL801" not in codes(place, "serving") and codes(place, "conf") == []
    place.write(other, "# @package args\nhost: 127.0.0.1  # speclaunch: ignore[SPL801] closed\n")
    assert codes(place, "conf") == ["SPL091"] and place.lint("conf").code == 0
    (place.folder / "serving/c.yaml").unlink()
    for algorithm, found in (("NO_SUCH", []), ("NGRAM", ["SPL091"])):
        wrong = GROUP.format(algorithm=algorithm).replace("\nspec", "\nspec", 1)
        lines = wrong.splitlines()
        place.write(name, "\n".join([lines[0], lines[1] + comment.rstrip(), *lines[2:]]) + "\n")
        assert "SPL101" not in codes(place, "serving")
        for named in (name, "conf"):  # by itself, or below a directory
            said = [code for code in codes(place, named) if code in ("SPL101", "SPL091")]
            assert said == found, named
