"""How the data is written: nothing lost, nothing that depends on the day, small enough to ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.engine.releases import argument as timeline
from speclaunch.engine.releases.argument import (
    Argument,
    ArgumentKind,
    EngineVariable,
    decode_argument,
    decode_variable,
    encode_argument,
    encode_variable,
)
from speclaunch.engine.releases.catalogue import DATA, held_versions

_PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_NAMES = st.from_regex(r"\A[a-z]{1,4}(-[a-z]{1,3})?\Z")
_ARGUMENTS = st.builds(
    Argument,
    flag=_NAMES.map("--{}".format),
    dest=_NAMES.map(lambda name: name.replace("-", "_")),
    kind=st.sampled_from([kind for kind in ArgumentKind if kind is not ArgumentKind.HELP]),
    type=st.sampled_from(["str", "int", "bool", "json"]),
    default=_PLAIN | st.lists(_PLAIN, max_size=2),
    choices=st.none() | st.lists(_PLAIN, max_size=3).map(tuple),
    nargs=st.sampled_from([None, "+", "*", "?", 2]),
    const=_PLAIN,
    aliases=st.lists(_NAMES.map("--{}".format), max_size=2).map(tuple),
    deprecated=st.booleans(),
    replacement=st.none() | st.text(max_size=5),
    required=st.booleans(),
    read=st.booleans(),
)
_VARIABLES = st.builds(
    EngineVariable,
    name=st.just("SGLANG_X"),
    type=st.sampled_from(["str", "bool"]),
    default=_PLAIN,
    dynamic=st.booleans(),
    read=st.booleans(),
    speculative=st.booleans(),
    deprecated=st.booleans(),
    replacement=st.none() | st.text(max_size=5),
)


def through_json(record: Any) -> Any:
    return json.loads(json.dumps(record))


@pytest.mark.thorough
@given(_ARGUMENTS)
def test_argument_round_trip(argument: Argument) -> None:
    record = through_json(encode_argument(argument))
    again = decode_argument(argument.flag, record)
    assert again == argument
    assert type(again.default) is type(argument.default)
    assert encode_argument(again) == record


@pytest.mark.thorough
@given(_VARIABLES)
def test_variable_round_trip(variable: EngineVariable) -> None:
    record = through_json(encode_variable(variable))
    assert decode_variable(variable.name, record) == variable


_RECORDS = st.fixed_dictionaries({}, optional={"default": st.integers(0, 2), "kind": st.just("x")})


@pytest.mark.thorough
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["--a", "--b", "--é"]), _RECORDS), min_size=1, max_size=6
    )
)
@settings(max_examples=200)
def test_timeline_round_trip(by_version: list[dict[str, dict[str, Any]]]) -> None:
    versions = [f"0.{index}" for index in range(len(by_version))]
    records = dict(zip(versions, by_version, strict=True))
    text = timeline.encode(versions, records)
    decoded = timeline.decode(json.loads(text))
    assert decoded == records
    assert timeline.encode(versions, decoded) == text


def test_an_unchanged_new_version_changes_only_the_head() -> None:
    records = {"1": {"--a": {"default": 1}}, "2": {"--a": {"default": 2}}}
    before = timeline.encode(["1", "2"], records).splitlines()
    after = timeline.encode(["1", "2", "3"], {**records, "3": records["2"]}).splitlines()
    assert before[1:] == after[1:]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["arguments", "variables"])
def test_shipped_files_are_in_normal_form(name: str) -> None:
    text = (DATA / f"{name}.json").read_text("utf-8")
    data = json.loads(text)
    versions = data["versions"]
    decoded = timeline.decode(data)
    assert timeline.encode(versions, decoded) == text
    for version in versions:
        for key, record in decoded[version].items():
            if name == "arguments":
                assert encode_argument(decode_argument(key, record)) == record
            else:
                assert encode_variable(decode_variable(key, record)) == record


def test_shipped_files_agree_on_the_versions(tmp_path: Path) -> None:
    held = list(held_versions(tmp_path))
    assert json.loads((DATA / "versions.json").read_text("utf-8")) == held
    for name in ("arguments", "variables", "history"):
        assert json.loads((DATA / f"{name}.json").read_text("utf-8"))["versions"] == held


def test_shipped_files_are_small() -> None:
    files = sorted(DATA.iterdir())
    assert [file.name for file in files] == [
        "arguments.json",
        "history.json",
        "metrics.json",
        "variables.json",
        "versions.json",
    ]
    assert sum(file.stat().st_size for file in files) < 1024 * 1024
