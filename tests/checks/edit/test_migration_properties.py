"""Generated commands, carried between versions: the meaning stays, or it is told what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclaunch.checks.edit.migrate import migrate_commands
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import (
    Argument,
    ArgumentKind,
    Catalogue,
    held_versions,
    load,
)
from speclaunch.engine.releases.renames import canonical

pytestmark = pytest.mark.thorough

VERSIONS = ("0.4.8.post1", "0.5.3.post3", "0.5.9", "0.5.14", "0.5.19", "0.5.23")
_TEXTS = ("x", "a b", "/models/draft", "it's", "a=b", "$HOME/x", "#1")
_SAFE = ("int", "float", "str")
_APART = {"model_path", "config", "lora_paths", "help"}


def _values(argument: Argument) -> st.SearchStrategy[str]:
    if argument.choices:
        return st.sampled_from([str(choice) for choice in argument.choices])
    if argument.type == "int":
        return st.integers(1, 64).map(str)
    if argument.type == "float":
        return st.sampled_from(["0.5", "0.75"])
    return st.sampled_from(_TEXTS)


def _flags(argument: Argument, catalogue: Catalogue) -> list[str]:
    """The flag, and what is short for it in this version."""
    found = [argument.flag]
    for length in range(len(argument.flag) - 1, 6, -1):
        short = argument.flag[:length]
        if catalogue.resolve_flag(short) is not argument:
            break
        found.append(short)
    return found


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, str, str]:
    """A script, the version that it is for, and one to carry it to."""
    version, to = draw(st.sampled_from(VERSIONS)), draw(st.sampled_from(VERSIONS))
    catalogue = load(version)
    pool = [
        argument
        for argument in catalogue.arguments.values()
        if argument.name not in _APART
        and (argument.kind is ArgumentKind.FLAG or argument.kind is ArgumentKind.VALUE)
        and (not argument.kind.takes_value or argument.type in _SAFE)
        and argument.nargs is None
        and argument.const is None
    ]
    chosen = draw(
        st.lists(st.sampled_from(pool), min_size=1, max_size=6, unique_by=lambda a: a.dest)
    )
    before, words, array = ["MODEL=/models/target"], ["--model-path $MODEL"], []
    for number, argument in enumerate(chosen):
        flag = draw(st.sampled_from(_flags(argument, catalogue)))
        if not argument.kind.takes_value:
            written = flag
        else:
            value = draw(_values(argument))
            how = draw(st.sampled_from(("plain", "equals", "variable")))
            quoted = "'" + value.replace("'", "'\\''") + "'"
            if how == "variable":
                before.append(f"V{number}={quoted}  # a value")
                quoted = f'"$V{number}"'
            written = f"{flag}={quoted}" if how == "equals" else f"{flag} {quoted}"
        (array if draw(st.booleans()) else words).append(written)
    if array:
        before.append("ARGS=(\n  " + "\n  ".join(array) + "\n)")
        words.append('"${ARGS[@]}"')
    joint = draw(st.sampled_from((" ", " \\\n  ")))
    start = draw(st.sampled_from(("", "nohup ", "HF_HOME=/h ")))
    command = f"{start}python3 -m sglang.launch_server {joint.join(words)} > log\necho end\n"
    return "#!/bin/bash\n" + "\n".join(before) + "\n" + command, version, to


def asked(invocation: Invocation, version: str) -> dict[str, object]:
    words = [word.text for word in invocation.words]
    opaque = {index for index, word in enumerate(invocation.words) if not word.evaluated}
    parsed = parse_argv(words, load(version), opaque=opaque)
    assert parsed.error is None or "required" in parsed.error, parsed.error
    return {canonical(item.dest): item.stored for item in parsed.parsed}


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=commands())
def test_what_is_asked_stays_or_is_told(
    case: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    text, version, to = case
    reading = read_text(text, "x.sh", ".sh")
    migration = migrate_commands(text, reading, to, version)
    if migration.problems:
        assert migration.text == text
        return
    (old,) = reading.invocations
    (new,) = read_text(migration.text, "x.sh", ".sh").invocations
    before, after = asked(old, version), asked(new, to)
    told = " ".join(step.text for step in migration.steps)
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            assert name in told or name.replace("_", "-") in told, (name, told)
    assert migration.text.startswith("#!/bin/bash\nMODEL=/models/target\n")
    assert migration.text.endswith("> log\necho end\n")
    assert "=''\n" not in migration.text and "=\n" not in migration.text
    again = migrate_commands(migration.text, read_text(migration.text, "x.sh", ".sh"), to, to)
    assert again.text == migration.text and not again.problems


def test_the_versions_are_held() -> None:
    assert set(VERSIONS) <= set(held_versions())
