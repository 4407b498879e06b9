"""The tables of names against the catalogue that was read from the wheels."""

from __future__ import annotations

import pytest

from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import held_versions, history, load
from speclaunch.engine.releases.command import render_args
from speclaunch.engine.releases.renames import (
    CONVERSIONS,
    REMOVALS,
    RENAMES,
    Conversion,
    Rename,
    other_names,
)
from tests.support.loops import rows


@pytest.mark.parametrize("rename", RENAMES, ids=lambda rename: rename.old)
def test_a_rename_is_one_thing_under_two_names(rename: Rename) -> None:
    old, new = history(rename.old), history(rename.new)
    assert old is not None and new is not None
    evidence = set()
    for version in held_versions():
        before, after = load(version).by_name(rename.old), load(version).by_name(rename.new)
        if before and after:
            same = before.flag == after.flag or before.dest == after.dest
            named = before.replacement and rename.new in before.replacement.replace("-", "_")
            evidence.add("same" if same or named else "different")
    # never two different things at once; and where both are known at once it is proven
    assert evidence <= {"same"}
    assert evidence or old.last < new.first or old.current is False


@pytest.mark.parametrize("rename", RENAMES, ids=lambda rename: rename.old)
def test_either_name_can_be_said_to_every_version_that_has_one(rename: Rename) -> None:
    for version in held_versions():
        catalogue = load(version)
        found = [n for n in (rename.old, rename.new) if catalogue.by_name(n)]
        if found:
            argument = catalogue.by_name(found[0])
            assert argument is not None
            value = True if not argument.kind.takes_value else (argument.choices or (1,))[0]
            for name in (rename.old, rename.new):
                assert not render_args({name: value}, {}, catalogue).problems, (version, name)


@pytest.mark.parametrize("entry", CONVERSIONS, ids=lambda entry: entry.old)
def test_what_a_switch_became_is_taken_by_the_version_after_it(entry: Conversion) -> None:
    old = history(entry.old)
    assert old is not None and not old.current
    versions = held_versions()
    after = next(v for v in versions[versions.index(old.last) :] if load(v).by_name(entry.new))
    flag = "--" + entry.new.replace("_", "-")
    words = [flag] if entry.value is True else [flag, str(entry.value)]
    parsed = parse_argv(["--model-path", "m", *words], load(after))
    assert parsed.error is None


@rows("name", sorted(REMOVALS))
def test_what_was_removed_is_gone_and_has_no_other_name(name: str) -> None:
    past = history(name)
    assert past is not None and not past.current
    newest = load(held_versions()[-1])
    assert all(newest.by_name(other) is None for other in other_names(name))


def test_the_way_out_is_named() -> None:
    (problem,) = render_args({"disable_piecewise_cuda_graph": True}, {}, load("0.5.23")).problems
    assert problem.help is not None
    assert "cuda_graph_backend_prefill: disabled" in problem.help
    (problem,) = render_args({"speculative_ngram_branch_length": 3}, {}, load("0.5.23")).problems
    assert problem.help is not None and "max_trie_depth" in problem.help
