"""The findings of a text that a verb is about to write, by whether its source has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.edit.checked_text import OutputCheck, against, check_text, configured

SERVER = "python3 -m sglang.launch_server --model-path m "
STAGES = "--speculative-algorithm NGRAM --pp-size 2 "  # SPL221
PERCENT = "--mem-fraction-static 83 "  # SPL710


def compared(
    folder: Path, before: str, after: str, versions: tuple[str, ...] = ()
) -> tuple[list[str], list[str]]:
    """The codes of new and of inherited errors."""
    path = str(folder / "run.sh")
    how = configured(path, ("0.5.23",))
    old = check_text(path, before, how, versions=versions)
    found: OutputCheck = against(old, check_text(path, after, how))
    assert not Path(path).exists()
    return [one.code for one in found.errors], [one.code for one in found.inherited]


@pytest.mark.thorough
def test_an_error_is_new_if_its_deployment_does_not_have_it(tmp_path: Path) -> None:
    clean, stages, percent = f"{SERVER}\n", f"{SERVER}{STAGES}\n", f"{SERVER}{PERCENT}\n"
    for before, after, new, inherited in (
        (clean, stages, ["SPL221"], []),
        (stages, stages, [], ["SPL221"]),
        (stages, clean, [], []),
        (stages, f"{SERVER}{STAGES}{PERCENT}\n", ["SPL710"], ["SPL221"]),
        (clean + stages, stages + stages, ["SPL221"], ["SPL221"]),
        (stages + clean, clean + stages, ["SPL221"], []),
        (stages + percent, f"# moved\n{stages}{percent}", [], ["SPL221", "SPL710"]),
        (clean, "python3 -m sglang.launch_server --model-path 'm\n", ["SPL000"], []),
    ):
        assert compared(tmp_path, before, after) == (new, inherited), (before, after)


def test_each_command_of_the_source_may_have_its_own_release(tmp_path: Path) -> None:
    before = f"{SERVER}--cuda-graph-max-bs 8\n{SERVER}\n"
    after = f"{SERVER}--cuda-graph-max-bs 8\n{SERVER}\n"
    assert compared(tmp_path, before, after, ("0.5.9", "0.5.23")) == (["SPL002"], [])
    assert compared(tmp_path, before, after, ("0.5.23", "0.5.23")) == ([], ["SPL002"])


def test_the_project_configures_the_check_as_it_configures_lint(tmp_path: Path) -> None:
    (tmp_path / "speclaunch.toml").write_text('ignore = ["SPL221"]\n')
    assert compared(tmp_path, f"{SERVER}\n", f"{SERVER}{STAGES}\n") == ([], [])
