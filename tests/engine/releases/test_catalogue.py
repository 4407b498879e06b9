"""The shipped catalogues, their lookups, and argparse as the oracle for shortened flags."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from speclaunch.core.errors import InputError
from speclaunch.engine.releases import catalogue as catalogue_module
from speclaunch.engine.releases.catalogue import (
    DATA,
    Ambiguous,
    Argument,
    ArgumentKind,
    Catalogue,
    UnknownFlag,
    UnknownVersion,
    add_from_package,
    held_versions,
    history,
    load,
    resolve_version,
)

NEWEST = "0.5.23"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    yield
    catalogue_module._load.cache_clear()


def argument(name: str, version: str = NEWEST) -> Argument:
    found = load(version).by_name(name)
    assert found is not None
    return found


# Versions ------------------------------------------------------------------------------------


def test_held_versions_ascend() -> None:
    held = held_versions()
    assert list(held) == sorted(held, key=Version)
    assert held[0] == "0.4.6.post5"
    assert len({Version(version).release for version in held}) == len(held)


@pytest.mark.parametrize(
    ("asked", "held", "exact"),
    [
        ("0.5.9", "0.5.9", True),
        ("v0.5.9", "0.5.9", True),
        (" 0.5.9 ", "0.5.9", True),
        ("sglang==0.5.9", "0.5.9", True),
        ("0.5.13", "0.5.13.post1", False),
        ("0.5.10", "0.5.10.post1", False),
        ("0.5.10rc0", "0.5.10.post1", False),
        ("0.5.20rc1", "0.5.20", False),
        ("0.5.20.dev12+gabc", "0.5.20", False),
        ("0.5.20+cu128", "0.5.20", False),
        ("0.5.12-1", "0.5.12.post1", True),
        ("0.4.6", "0.4.6.post5", False),
        ("0.5.9.post7", "0.5.9", False),
        ("0.5.0rc2", "0.4.10.post2", False),
        ("0.4.3.post2", "0.4.6.post5", False),
        ("0.0.1", "0.4.6.post5", False),
    ],
)
def test_resolve_version(asked: str, held: str, exact: bool) -> None:
    found = resolve_version(asked)
    assert (found.held, found.exact, found.requested) == (held, exact, asked)
    assert (found.note is None) is exact
    if not exact:
        assert held in str(found.note)
    assert load(asked).version == held


def test_newer_than_the_newest() -> None:
    newest = held_versions()[-1]
    assert resolve_version("newest").held == resolve_version("latest").held == newest
    found = resolve_version("7.0")
    assert (found.held, found.exact) == (newest, False)
    assert "newer than every known release" in str(found.note)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("bananas", "not a version"),
        ("", "not a version"),
        ("0.5.9 0.5.10", "not a version"),
    ],
)
def test_unknown_version(asked: str, message: str) -> None:
    with pytest.raises(UnknownVersion, match=message) as raised:
        resolve_version(asked)
    assert held_versions()[-1] in str(raised.value.problems[0].help)
    with pytest.raises(UnknownVersion):
        load(asked)


# Arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["tp_size", "tp-size", "--tp-size", "tensor_parallel_size", "--tensor-parallel-size"]
)
@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.13.post1", "0.5.14", NEWEST])
def test_by_name(name: str, version: str) -> None:
    found = argument(name, version)
    assert found.kind is ArgumentKind.VALUE
    assert (found.type, found.default) == ("int", 1)
    assert set(found.flags) == {"--tp-size", "--tensor-parallel-size"}


def test_a_name_is_not_shortened() -> None:
    assert load(NEWEST).by_name("tensor_parallel") is None
    assert load(NEWEST).by_name("") is None


def test_a_shared_destination() -> None:
    """0.5.14 … 0.5.19: the old flag stores where the new one does; each keeps its name."""
    old, new = (
        argument("cuda_graph_max_bs", "0.5.16"),
        argument("cuda_graph_max_bs_decode", "0.5.16"),
    )
    assert (old.flag, new.flag) == ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")
    assert old.dest == new.dest == "cuda_graph_max_bs_decode"
    assert (old.deprecated, old.replacement) == (True, "--cuda-graph-max-bs-decode")
    assert not new.deprecated
    backend = argument("cuda_graph_backend_prefill", "0.5.16")
    assert backend.flag == "--cuda-graph-backend-prefill"
    constant = argument("disable_piecewise_cuda_graph", "0.5.16")
    assert (constant.kind, constant.const, constant.dest) == (
        ArgumentKind.CONSTANT,
        "disabled",
        backend.dest,
    )


def test_a_destination_that_is_no_flag() -> None:
    assert argument("fp8_gemm_runner_backend", "0.5.9").flag == "--fp8-gemm-backend"


@pytest.mark.parametrize(
    ("name", "version", "kind"),
    [
        ("enable_ep_moe", "0.4.10.post2", ArgumentKind.FLAG),
        ("enable_ep_moe", "0.5.3.post3", ArgumentKind.REFUSED),
        ("enable_piecewise_cuda_graph", "0.5.13.post1", ArgumentKind.IGNORED),
        ("speculative_enable_w4a4_mxfp4_megamoe", NEWEST, ArgumentKind.BOOLEAN),
        ("cuda_graph_bs_decode", NEWEST, ArgumentKind.LIST),
        ("trust_remote_code", NEWEST, ArgumentKind.FLAG),
        ("tool_server", NEWEST, ArgumentKind.VALUE),
    ],
)
def test_kinds(name: str, version: str, kind: ArgumentKind) -> None:
    assert argument(name, version).kind is kind


def test_choices_follow_the_version() -> None:
    assert argument("speculative_algorithm", "0.5.9").choices == (
        "EAGLE",
        "EAGLE3",
        "NEXTN",
        "STANDALONE",
        "NGRAM",
    )
    assert argument("speculative_algorithm", NEWEST).choices is None
    assert argument("context_length", "0.5.9").type == "int"
    assert argument("context_length", NEWEST).type == "human_readable_int"
    assert argument("model_path", NEWEST).required


@pytest.mark.parametrize(
    ("name", "version", "read"),
    [
        ("speculative_num_steps", NEWEST, True),
        ("decoupled_spec_rank", NEWEST, False),
        ("decoupled_spec_bind_endpoint", "0.5.15.post1", False),
        ("spec_trace_dir", NEWEST, False),
        ("num_continuous_decode_steps", NEWEST, False),
    ],
)
def test_accepted_but_not_read(name: str, version: str, read: bool) -> None:
    assert argument(name, version).read is read


def test_variables() -> None:
    force = {
        version: load(version).variables["SGLANG_NGRAM_FORCE_GREEDY_VERIFY"]
        for version in ("0.5.13.post1", "0.5.14", NEWEST)
    }
    assert [variable.read for variable in force.values()] == [True, False, False]
    assert {(variable.type, variable.default) for variable in force.values()} == {("bool", False)}
    assert all(variable.speculative for variable in force.values())
    spec_v2 = {
        version: load(version).variables["SGLANG_ENABLE_SPEC_V2"]
        for version in ("0.5.10.post1", "0.5.11", "0.5.14")
    }
    assert [variable.default for variable in spec_v2.values()] == [False, True, None]
    assert [variable.read for variable in spec_v2.values()] == [True, True, False]
    assert "SGLANG_ENABLE_SPEC_V2" not in load(NEWEST).variables


# History -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("cuda_graph_max_bs", "0.4.6.post5", "0.5.19"),
        ("--cuda-graph-max-bs-decode", "0.5.14", NEWEST),
        ("enable_beta_spec", "0.5.3.post3", "0.5.3.post3"),
        ("speculative_ngram_branch_length", "0.5.3.post3", "0.5.9"),
        ("speculative_dflash_draft_window_size", "0.5.11", "0.5.19"),
        ("tp_size", "0.4.6.post5", NEWEST),
        ("no_speculative_enable_w4a4_mxfp4_megamoe", "0.5.22", NEWEST),
    ],
)
def test_history(name: str, first: str, last: str) -> None:
    found = history(name)
    assert found is not None
    assert tuple(found) == (found.first, found.last) == (first, last)
    assert found.current is (last == held_versions()[-1])


def test_no_history() -> None:
    assert history("never_existed") is None


@pytest.mark.parametrize("version", held_versions(Path("/nonexistent")))
def test_history_agrees_with_every_catalogue(version: str) -> None:
    held = held_versions()
    place = held.index(version)
    loaded = load(version)
    names = json.loads((DATA / "history.json").read_text("utf-8"))["names"]
    assert len(names) >= len(loaded.arguments)
    for name in names:
        found = history(name)
        assert found is not None
        inside = any(held.index(first) <= place <= held.index(last) for first, last in found.spans)
        known = loaded.by_name(name) is not None
        negation = "--" + name.replace("_", "-") in loaded._by_flag
        assert inside is (known or negation), name


# Shortened flags -----------------------------------------------------------------------------


def test_removed_flag_that_became_a_prefix() -> None:
    found = load("0.5.20").resolve_flag("--cuda-graph-max-bs=8")
    assert found == Ambiguous(
        "--cuda-graph-max-bs=8", ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-prefill")
    )
    exact = load("0.5.19").resolve_flag("--cuda-graph-max-bs=8")
    assert isinstance(exact, Argument)
    assert exact.flag == "--cuda-graph-max-bs"


def test_resolve_flag() -> None:
    newest = load(NEWEST)
    short = newest.resolve_flag("--speculative-algo")
    assert isinstance(short, Argument)
    assert short.flag == "--speculative-algorithm"
    assert newest.full_flag("--no-speculative-enable-w4a4") == (
        "--no-speculative-enable-w4a4-mxfp4-megamoe"
    )
    helped = newest.resolve_flag("-h")
    assert isinstance(helped, Argument)
    assert helped.kind is ArgumentKind.HELP
    wrong = newest.resolve_flag("--speculatve-num-steps")
    assert isinstance(wrong, UnknownFlag)
    assert newest.close(wrong.token)[0] == "--speculative-num-steps"


class _Refused(Exception):
    """What the oracle's parser says instead of leaving the process."""


class _Oracle(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise _Refused(message)


class _Record(argparse.Action):
    def __call__(self, _parser: Any, namespace: Any, _values: Any, option: Any = None) -> None:
        namespace.seen = option


def oracle(options: Sequence[Sequence[str]]) -> argparse.ArgumentParser:
    parser = _Oracle(add_help=False)
    for index, flags in enumerate([*options, ("--help", "-h")]):
        parser.add_argument(*flags, dest=f"a{index}", nargs="?", action=_Record)
    return parser


def read_by_argparse(parser: argparse.ArgumentParser, token: str) -> str | set[str] | None:
    """The option that argparse takes the token for, None, or the ambiguous ones."""
    try:
        seen, _ = parser.parse_known_args([token])
    except _Refused as refusal:
        head, _, names = str(refusal).partition(" could match ")
        assert "ambiguous option" in head
        return set(names.split(", "))
    option: str | None = getattr(seen, "seen", None)
    return option


def agree(catalogue: Catalogue, parser: argparse.ArgumentParser, token: str) -> None:
    ours = catalogue.full_flag(token)
    theirs = read_by_argparse(parser, token)
    if isinstance(ours, Ambiguous):
        assert theirs == set(ours.candidates)
    else:
        assert theirs == (None if isinstance(ours, UnknownFlag) else ours)


_WORD = st.text("ab-", min_size=1, max_size=6).filter(lambda word: not word.startswith("-"))


@pytest.mark.thorough
@given(st.sets(_WORD, min_size=1, max_size=8), _WORD, st.sampled_from(["", "=v", "=", "=a=b"]))
@settings(max_examples=300, deadline=None)
def test_prefixes_as_argparse_reads_them(flags: set[str], token: str, value: str) -> None:
    arguments = {f"--{flag}": Argument(f"--{flag}", flag, ArgumentKind.VALUE) for flag in flags}
    parser = oracle([[flag] for flag in arguments])
    agree(Catalogue("0", arguments), parser, f"--{token}{value}")


_CATALOGUES = {version: load(version) for version in ("0.4.6.post5", "0.5.14", NEWEST)}
_ORACLES = {
    version: oracle([argument.flags for argument in catalogue.arguments.values()])
    for version, catalogue in _CATALOGUES.items()
}


@pytest.mark.thorough
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_real_flags_as_argparse_reads_them(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(sorted(_CATALOGUES)))
    catalogue = _CATALOGUES[version]
    flag = data.draw(st.sampled_from([f for a in catalogue.arguments.values() for f in a.flags]))
    length = data.draw(st.integers(3, len(flag)))
    tail = data.draw(st.sampled_from(["", "=1", "x", "-x"]))
    agree(catalogue, _ORACLES[version], flag[:length] + tail)


# Catalogues of the user's own ----------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "site" / "sglang"
    (root / "srt").mkdir(parents=True)
    (root / "version.py").write_text('__version__ = "0.5.24"\n')
    (root / "srt" / "server_args.py").write_text(
        "raise SystemExit('not to be imported')\n"
        "class ServerArgs:\n"
        "    def add_cli_args(parser):\n"
        "        parser.add_argument('--model-path', '--model', required=True)\n"
        "        parser.add_argument('--brand-new', choices=['a', 'b'], default='a')\n"
        "def use(args):\n"
        "    return args.model_path, os.getenv('SGLANG_SPEC_FAST', '1')\n"
    )
    return root


def test_add_from_package(package: Path, tmp_path: Path) -> None:
    made = add_from_package(package)
    place = tmp_path / "home" / "catalogue"
    assert [file.name for file in place.iterdir()] == ["0.5.24.json"]
    assert made.version == "0.5.24"
    assert held_versions()[-1] == "0.5.24"
    assert resolve_version("0.5.24").exact
    assert load("newest").version == "0.5.24"
    assert argument("brand_new", "0.5.24") == Argument(
        "--brand-new",
        "brand_new",
        ArgumentKind.VALUE,
        default="a",
        choices=("a", "b"),
        read=False,
    )
    assert argument("model", "0.5.24").read
    assert made.variables["SGLANG_SPEC_FAST"].speculative
    assert load(NEWEST).by_name("brand_new") is None


def test_an_own_catalogue_wins(package: Path, tmp_path: Path) -> None:
    (package / "version.py").write_text('__version__ = "0.5.9"\n')
    directory = tmp_path / "mine"
    assert len(load("0.5.9", directory).arguments) > 300
    assert len(add_from_package(package, directory).arguments) == 2
    assert len(load("0.5.9", directory).arguments) == 2
    assert len(load("0.5.9").arguments) > 300


def test_a_broken_own_catalogue_says_so(tmp_path: Path) -> None:
    (tmp_path / "0.5.24.json").write_text("{")
    (tmp_path / "notes.json").write_text("{}")
    assert held_versions(tmp_path)[-1] == "0.5.24"
    with pytest.raises(InputError, match=r"0\.5\.24\.json is not a catalogue"):
        load("0.5.24", tmp_path)


def test_a_failed_add_leaves_nothing(package: Path, tmp_path: Path) -> None:
    (package / "srt" / "server_args.py").write_text("def broken(:\n")
    with pytest.raises(InputError, match="cannot be parsed"):
        add_from_package(package)
    assert not (tmp_path / "home").exists()
