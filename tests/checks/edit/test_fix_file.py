"""All fixes of one file: rounds, conflicts, definitions that commands share, several versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.edit.fix_files import FixedFile, fix_file
from speclaunch.checks.lint.collect import read_found
from speclaunch.checks.lint.configuration import FoundFile, Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.registry import all_rules, by_code

SERVER = "python3 -m sglang.launch_server --model-path m --port 31000 "
DRAFT = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d "
BAD = f"{SERVER}{DRAFT}--speculative-num-steps 3 --speculative-num-draft-tokens 9\n"
GOOD = BAD.replace("tokens 9", "tokens 4 --speculative-eagle-topk 1")
VARIABLE = "export SGLANG_ENABLE_SPEC_V2=1\n"


def fix(
    folder: Path,
    text: str,
    *codes: str,
    name: str = "run.sh",
    versions: tuple[str, ...] = ("0.5.23",),
    unsafe: bool = True,
) -> FixedFile:
    path = folder / name
    path.write_text(text)
    source = read_found(FoundFile(str(path), is_named=True))
    assert source is not None
    rules = tuple(rule for code in codes if (rule := by_code(code))) or all_rules()
    done = fix_file(source, Options(Lookup(), rules, versions), unsafe=unsafe)
    assert path.read_text() == text
    if done.is_changed:
        path.write_text(done.after)
        source = read_found(FoundFile(str(path), is_named=True))
        assert source is not None
        again = fix_file(source, Options(Lookup(), rules, versions), unsafe=unsafe)
        assert not again.is_changed
    return done


def codes(done: FixedFile) -> list[str]:
    return [one.code for one in done.applied]


def test_rounds_go_on_until_nothing_is_left(tmp_path: Path) -> None:
    """SPL105 appears once topk is set."""
    done = fix(tmp_path, VARIABLE + BAD)
    assert done.after == GOOD
    assert codes(done) == ["SPL203", "SPL103", "SPL105"]
    assert [str(one.place).rpartition("/")[2] for one in done.applied] == [
        "run.sh:1:30",
        f"run.sh:2:{BAD.index('--speculative-num-steps') + 1}",
        f"run.sh:2:{BAD.index('--speculative-num-draft') + 1}",
    ]
    assert not done.left
    assert not done.unsafe


def test_safe_fixes_alone(tmp_path: Path) -> None:
    done = fix(tmp_path, VARIABLE + BAD, unsafe=False)
    assert (done.after, codes(done)) == (BAD, ["SPL203"])
    assert [one.code for one in done.unsafe] == ["SPL103"]


@pytest.mark.thorough
def test_many_commands_of_one_file(tmp_path: Path) -> None:
    done = fix(tmp_path, "".join(BAD.replace("31000", f"3100{n}") for n in range(5)))
    assert done.after == "".join(GOOD.replace("31000", f"3100{n}") for n in range(5))
    assert len(done.applied) == 10


def test_one_definition_of_commands_that_all_have_the_finding(tmp_path: Path) -> None:
    options = BAD.removeprefix(SERVER).strip()
    text = f"A=({options})\n{SERVER}${{A[@]}}\n{SERVER.replace('31000', '31001')}${{A[@]}}\n"
    done = fix(tmp_path, text)
    assert not done.left
    fixed = GOOD.removeprefix(SERVER).strip()
    assert done.after == text.replace(options, fixed)


def test_one_definition_of_which_one_command_has_the_finding(tmp_path: Path) -> None:
    shared = "A=(--speculative-num-draft-tokens 4 --speculative-eagle-topk 1)\n"
    one = f"{SERVER}{DRAFT}--speculative-num-steps 3 ${{A[@]}}\n"
    text = shared + one + one.replace("steps 3", "steps 5").replace("31000", "31001")
    done = fix(tmp_path, text, "SPL105")
    assert done.after == text
    (left,) = done.left
    assert "would change, too: speculative_num_draft_tokens" in left.why


def test_a_fix_that_would_cause_an_error_is_left(tmp_path: Path) -> None:
    """The two rules want the opposite of each other where 0.5.9 is asked, too."""
    text = f"{VARIABLE}{GOOD}"
    done = fix(tmp_path, text, versions=("0.5.9", "0.5.23"))
    errors = [one.code for one in done.findings if one.severity == "error"]
    assert not errors
    assert codes(done) in (["SPL203"], [])


def test_a_version_that_lacks_the_argument(tmp_path: Path) -> None:
    """What 0.5.23 wants set, 0.5.3 has no argument for: that would be an error there."""
    text = f"{SERVER}--enable-dp-attention --tp-size 4 --attn-dp-size 4\n"
    alone = fix(tmp_path, text)
    both = fix(tmp_path, text, versions=("0.5.3.post3", "0.5.23"))
    before = {(one.engine, one.code) for one in both.findings if one.severity == "error"}
    assert isinstance(alone.after, str)
    for left in both.left:
        assert left.why
    source = both.before if not both.is_changed else both.after
    again = fix(tmp_path, source, versions=("0.5.3.post3", "0.5.23"))
    assert {(one.engine, one.code) for one in again.findings if one.severity == "error"} <= before


def test_an_alias_is_one_command_for_containers_that_differ(tmp_path: Path) -> None:
    """Only `a` sets the variable, and its command is that of `b`, too: what it is told stays its
    own."""
    text = """services:
  a:
    environment: {SGLANG_ENABLE_SPEC_V2: "1", OTHER: "1"}
    command: &server [python3, -m, sglang.launch_server, --model-path=m, --speculative-algorithm=NGRAM]
  b:
    command: *server
"""
    done = fix(tmp_path, text, "SPL203", name="compose.yaml")
    assert done.after == text.replace('SGLANG_ENABLE_SPEC_V2: "1", ', "")


def test_a_silenced_finding_is_not_fixed(tmp_path: Path) -> None:
    comment = "  # speclaunch: ignore[SPL203] kept for 0.5.9"
    text = VARIABLE.replace("\n", f"{comment}\n") + GOOD
    assert not fix(tmp_path, text).is_changed


def test_images_of_several_versions_in_one_file(tmp_path: Path) -> None:
    """Each command is spelled and judged for its own."""
    service = """  {name}:
    image: lmsysorg/sglang:v{version}
    environment:
      OTHER: "1"
      SGLANG_ENABLE_SPEC_V2: "1"
    command: python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3
"""
    old, new = (service.format(name=f"n{v[-1]}", version=v) for v in ("0.5.9", "0.5.23"))
    done = fix(tmp_path, f"services:\n{old}{new}", "SPL203", name="c.yaml", versions=())
    gone = new.replace('      SGLANG_ENABLE_SPEC_V2: "1"\n', "")
    assert done.after == f"services:\n{old}{gone}"
