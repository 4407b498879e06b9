"""A kustomization in a lint: its findings in the files of others, remembered as long as these stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checks.lint.linting import Place
from tests.checks.lint.test_reads import forget, heard, options, recorded_lint
from tests.deployments.sources.test_kustomize import BASE, FILES, OVERLAY
from tests.support.deployments.sources.helpers import Lookup, Options, all_rules, collect, lint

__all__ = ["heard"]


def written(place: Place) -> None:
    for name, text in FILES.items():
        place.write(f"kustomize/{name}", text)


WRONG = BASE.replace("- --tp\n", "- --tpx\n")
CHANGES: dict[str, Callable[[Place], object]] = {
    "a base": lambda p: p.write("kustomize/base/server.yaml", WRONG),
    "a patch": lambda p: p.write("kustomize/over/memory.yaml", "kind: Deployment\n"),
    "a patch is gone": lambda p: (p.folder / "kustomize/over/memory.yaml").unlink(),
    "the base's own kustomization": lambda p: p.write(
        "kustomize/base/kustomization.yaml", "resources: [server.yaml, gone.yaml]\n"
    ),
    "a directory instead of a file": lambda p: [
        (p.folder / "kustomize/over/more.yaml").unlink(),
        p.write("kustomize/over/more.yaml/kustomization.yaml", "helmCharts: []\n"),
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_a_composed_file_is_noticed(
    place: Place, change: Callable[[Place], object]
) -> None:
    written(place)
    before = place.lint("kustomize/over")
    assert place.lint("kustomize/over") == before
    change(place)
    after = place.lint("kustomize/over")
    assert after == place.fresh("kustomize/over")
    assert after != before


def test_every_look_is_noted(
    place: Place, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(place)
    monkeypatch.chdir(place.folder)
    recorded_lint(heard, "kustomize", options(), ())


def test_a_finding_stands_where_the_value_is_written(tmp_path: Path) -> None:
    """In the base or in the kustomization; an ignore comment there counts."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (tmp_path / "base/server.yaml").write_text(WRONG)
    overlay = OVERLAY.replace("--trust-remote-code", "--no-such")
    (tmp_path / "over/kustomization.yaml").write_text(overlay)

    def found() -> list[tuple[str, int]]:
        sources = collect([str(tmp_path / "over/kustomization.yaml")])
        told = lint(sources, Options(Lookup(), all_rules(), installed=lambda: None))
        return sorted(
            (Path(one.place.path).name, one.place.line)
            for file in told.files
            for one in file.findings
            if one.code == "SPL001"
        )

    assert found() == [("kustomization.yaml", 14), ("server.yaml", 16)]
    ignored = WRONG.replace("- --tpx\n", "- --tpx  # speclaunch: ignore[SPL001] mine\n")
    (tmp_path / "base/server.yaml").write_text(ignored)
    forget()
    assert found() == [("kustomization.yaml", 14)]
