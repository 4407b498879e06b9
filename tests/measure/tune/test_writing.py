"""The recipe's file gets the setting, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from speclaunch.app.verbs.run_options import TuneOptions
from speclaunch.app.verbs.shared import OutputRefusedError
from speclaunch.app.verbs.tune import TuningTask, _written
from speclaunch.checks.rules.examine import Lookup
from speclaunch.core.errors import InputError
from speclaunch.core.resources import recipes_dir
from speclaunch.deployments.recipe.compose import compose
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.measure.tune.model import DraftSetting
from speclaunch.measure.tune.writing import Tuned, elsewhere, require_own, tuned

EVIDENCE = "2026-11-23: 1.18 (1.12 to 1.25) times as fast, code"
OF_A_GROUP = """\
# Mine.
defaults:
  - base
  - model: cpu_cycle
  - speculation: standalone_chain
  - override hardware: cpu
  - _self_

description: mine

args:
  speculative_draft_model_path: ${cpu_model:cycle-draft}  # a small one
"""
ITS_OWN = (
    OF_A_GROUP
    + """\
  speculative_num_steps: 3  # as in the group
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
"""
)


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", [OF_A_GROUP, ITS_OWN])
def test_it_is_written_where_the_recipe_says_it(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    before = compose(str(path), (), ()).values
    found = tuned(path, DraftSetting(5, 2, 8), "0.5.23", EVIDENCE)
    assert path.read_text() == text == found.before  # nothing is written yet
    path.write_text(found.after)
    after = compose(str(path), (), ()).values
    wanted = {
        "speculative_num_steps": 5,
        "speculative_eagle_topk": 2,
        "speculative_num_draft_tokens": 8,
    }
    assert after == {**before, "args": {**before["args"], **wanted}}
    assert f"  # tuned {EVIDENCE}\n" in found.after
    kept = [line for line in text.splitlines() if "speculative_num" not in line]
    assert set(kept) - {"  speculative_eagle_topk: 1"} <= set(found.after.splitlines())


def test_a_second_tuning_replaces_the_comment_of_the_first(tmp_path: Path) -> None:
    path = written(tmp_path, ITS_OWN)
    path.write_text(tuned(path, DraftSetting(5, 2, 8), "0.5.23", EVIDENCE).after)
    again = tuned(path, DraftSetting(4, 1, 5), "0.5.23", "2027-01-01: 2.00 (1.50 to 2.50)")
    assert again.after.count("# tuned ") == 1 and "2027-01-01" in again.after
    assert "  speculative_num_steps: 4  # as in the group\n" in again.after


def test_ngram_has_one_argument(tmp_path: Path) -> None:
    text = (recipes_dir() / "cpu_ngram.yaml").read_text()
    path = written(tmp_path, text)
    found = tuned(path, DraftSetting(0, 1, 12), "0.5.23", EVIDENCE)
    changed = text.replace("draft_tokens: 8", "draft_tokens: 12")
    assert found.after == changed.replace("args:\n", f"args:\n  # tuned {EVIDENCE}\n")


def test_what_comes_with_speclaunch_is_not_edited() -> None:
    path = (recipes_dir() / "cpu_ngram.yaml").resolve()
    with pytest.raises(InputError, match="cannot be edited"):
        require_own(path, ["recipe=cpu_ngram"])


def test_a_text_that_cannot_be_edited_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, OF_A_GROUP.partition("args:")[0] + "args: ${oc.env:NOTHING,null}\n")
    with pytest.raises(InputError):
        tuned(path, DraftSetting(5, 2, 8), "0.5.23", EVIDENCE)


def test_in_another_folder_it_is_the_same_recipe_or_refused(tmp_path: Path) -> None:
    path = written(tmp_path, ITS_OWN.replace("# Mine.", "# Mine: recipe=mine"))
    found = tuned(path, DraftSetting(5, 2, 8), "0.5.23", EVIDENCE)
    other = tmp_path / "other" / "theirs.yaml"
    other.parent.mkdir()
    text = elsewhere(found, other)
    assert text == found.after.replace("recipe=mine", f"recipe={other}")

    (tmp_path / "speculation").mkdir()
    (tmp_path / "speculation" / "ours.yaml").write_text(
        "# @package args\nspeculative_algorithm: STANDALONE\nspeculative_num_steps: 2\n"
        "speculative_eagle_topk: 1\nspeculative_num_draft_tokens: 3\n"
    )
    path.write_text(OF_A_GROUP.replace("standalone_chain", "ours"))
    found = tuned(path, DraftSetting(5, 2, 8), "0.5.23", EVIDENCE)
    with pytest.raises(InputError):  # its group is not there
        elsewhere(found, other)
    assert elsewhere(found, other, [tmp_path])


@pytest.mark.thorough
def test_a_tuned_recipe_with_a_new_error_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    before = "defaults: [base]\nargs:\n  model_path: m\n  speculative_algorithm: NGRAM\n"
    prepared = SimpleNamespace(catalogue=load_catalogue("0.5.23"))
    side = SimpleNamespace(prepared=prepared, lookup=Lookup())

    def write(old: str, new: str, *, force: bool = False) -> Path | None:
        path.write_text(old)
        options = TuneOptions(write=True, force=force)
        task = cast(TuningTask, SimpleNamespace(side=side, options=options))
        return _written(task, Tuned(path, old, new))

    broken = f"{before}  mem_fraction_static: 83\n"
    with pytest.raises(OutputRefusedError, match="1 error"):
        write(before, broken)
    assert path.read_text() == before and "SPL710" in capsys.readouterr().err
    assert write(before, broken, force=True) == path and path.read_text() == broken
    more = f"{broken}  speculative_num_draft_tokens: 4\n"
    assert write(broken, more) == path and path.read_text() == more
    assert "the source already has 1 error" in capsys.readouterr().err
