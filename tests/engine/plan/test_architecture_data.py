"""Which release's model architectures answer for a version; another's are never taken silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.checks.rules.examine import Lookup
from speclaunch.engine.plan.architectures import architectures
from speclaunch.engine.releases.argument import encode_argument
from speclaunch.engine.releases.catalogue import held_versions, load
from speclaunch.engine.releases.versions import UnknownVersion
from tests.support.checks.rules.harness import request_of

NEWEST = held_versions()[-1]
LATER = "0.9.0"


def test_every_shipped_version_has_its_own(tmp_path: Path) -> None:
    for version in held_versions(tmp_path):
        known = architectures(version)
        assert known.exact and known.version == known.requested == version


def test_another_releases_are_marked() -> None:
    known = architectures(LATER)
    assert (known.requested, known.version, known.exact) == (LATER, NEWEST, False)
    assert architectures(f"{NEWEST}+fork.1234").exact, "a fork was made from a release"
    assert not architectures("0.1.0").exact, "the oldest answers"
    with pytest.raises(UnknownVersion):
        architectures("bananas")


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A version of which the user added the arguments: `speclaunch engine catalogue add`."""
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    arguments = {flag: encode_argument(one) for flag, one in load(NEWEST).arguments.items()}
    (tmp_path / "catalogue").mkdir()
    document = {"version": LATER, "arguments": arguments, "variables": {}}
    (tmp_path / "catalogue" / f"{LATER}.json").write_text(json.dumps(document))
    return LATER


def test_who_asks_about_a_version_without_its_own_is_told(later: str) -> None:
    args = {"model_path": "m"}
    told = Lookup().facts(request_of(args, None, {}, later)).unknown
    (fact,) = (one for one in told if "architectures" in one.what)
    assert later in fact.what and NEWEST in fact.why
    known = Lookup().facts(request_of(args, None, {}, NEWEST)).unknown
    assert not any("architectures" in one.what for one in known)
