"""Which release a command is read for, and how a release reads what it cannot tell apart."""

from __future__ import annotations

from speclaunch.deployments.sources.deployment import versioned
from speclaunch.deployments.sources.files import read_words
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.engine.releases.catalogue import held_versions

NEWEST = held_versions()[-1]
COMMAND = "python3 -m sglang.launch_server --model-path m "


def command(more: str) -> Invocation:
    (invocation,) = read_words((COMMAND + more).split()).invocations
    return invocation


def test_a_command_without_a_release_is_for_the_newest_with_its_flags_in_full() -> None:
    for more, flags in (
        ("--speculative-algo EAGLE3", ["--speculative-algo"]),
        ("--speculative-draft d", ["--speculative-draft-model-path"]),
        ("--speculative-draft=d", ["--speculative-draft-model-path=d"]),
        ("--cuda-graph-max-bs 8", ["--cuda-graph-max-bs-decode"]),
        ("--tensor-parallel-size 2", ["--tensor-parallel-size"]),
    ):
        read = versioned(command(more))
        words = [word.text for word in read.command.words if word.text.startswith("--")]
        assert (read.pin, read.note, words[1:]) == (NEWEST, None, flags)
        assert [word.text for word in read.words.words] == [w.text for w in read.command.words]
        assert len(read.in_full) == sum(flag.partition("=")[0] not in more for flag in flags)


def test_an_older_release_is_used_only_if_it_alone_accepts_the_command() -> None:
    read = versioned(command("--kt-amx-method x"))
    assert read.pin != NEWEST and not read.wrong
    assert f"{NEWEST} refuses the command" in str(read.note) and read.pin in str(read.note)
    read = versioned(command("--no-such-flag x"))
    assert (read.pin, read.note) == (NEWEST, None)


def test_the_installed_release_comes_first() -> None:
    for default, more, pin in (
        ("0.5.9", "", "0.5.9"),
        ("0.5.9", "--speculative-draft d", "0.5.9"),
        ("0.5.21+fork.12345678", "", "0.5.21"),
        ("0.5.9", "--no-such-flag", "0.5.9"),
    ):
        assert versioned(command(more), default=default).pin == pin


def test_a_stated_release_reads_the_command_as_it_is_and_the_nearest_answers_for_it() -> None:
    for version, held, note in (
        ("0.5.0rc2", "0.4.10.post2", "not a known release"),
        ("0.4.3.post2", "0.4.6.post5", "older than every known release"),
        ("9.9", NEWEST, "newer than every known release"),
        ("0.5.13", "0.5.13.post1", None),
    ):
        read = versioned(command(""), version)
        assert (read.pin, read.catalogue.version) == (version, held)
        assert (read.note is None) if note is None else (note in str(read.note))
    assert versioned(command("--cuda-graph-max-bs 8"), NEWEST).wrong == 1
    container = "docker run lmsysorg/sglang:v0.4.3.post2-cu124 " + COMMAND
    (invocation,) = read_words(container.split()).invocations
    assert versioned(invocation).pin == "0.4.3.post2"
