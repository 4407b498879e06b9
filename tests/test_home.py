from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.home import speclaunch_home


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SPECLAUNCH_HOME": "/a/b"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/speclaunch"),
        ({"XDG_CACHE_HOME": "not/absolute", "HOME": "/u"}, "/u/.cache/speclaunch"),
        ({"HOME": "/u"}, "/u/.cache/speclaunch"),
        ({"SPECLAUNCH_HOME": "~/x", "HOME": "/u"}, "/u/x"),
    ],
)
def test_where_things_are_kept(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPECLAUNCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert speclaunch_home() == Path(expected)
