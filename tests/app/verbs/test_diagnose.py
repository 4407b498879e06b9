"""`speclaunch diagnose` as it is used."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import program
from tests.support.loops import rows

CORPUS = Path(__file__).resolve().parents[2] / "serving" / "launch" / "diagnosis" / "corpus"


def run(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return program.run_bytes("diagnose", *words, given=given)


def test_a_failure_is_told_with_place_meaning_and_flags() -> None:
    log = CORPUS / "capture-0.5.10.post1.log"
    done = run(str(log), "--engine", "0.5.10.post1")
    said = done.stdout.decode()
    assert done.returncode == 1
    assert "memory ran out while CUDA graphs were captured [capture-out-of-memory]" in said
    number = (
        log.read_text()
        .split("\n")
        .index(next(line for line in log.read_text().split("\n") if line.startswith("torch.OutOf")))
    )
    assert f"{log}:{number + 1}" in said
    assert "torch.OutOfMemoryError: CUDA out of memory" in said
    assert "lower --mem-fraction-static 0.78   in a recipe: args.mem_fraction_static=0.78" in said
    assert "--cuda-graph-max-bs 24" in said and "max-bs-decode" not in said
    assert "KV cache allocated: 301,234 tokens" in said


def test_json_says_the_same() -> None:
    log = CORPUS / "cpu-fraction-draft.log"
    done = run(str(log), "--output-format", "json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["version"] == 1 and found["path"] == str(log)
    assert found["cause"]["name"] == "weights-exceed-fraction" and found["cause"]["memory"] is True
    assert found["changes"] == [
        {
            "argument": "mem_fraction_static",
            "direction": "raise",
            "flag": "--mem-fraction-static 0.095",
            "override": "args.mem_fraction_static=0.095",
            "now": 0.06,
        }
    ]
    assert found["engine"] == "0.5.23" and found["failed"] and not found["served"]
    assert found["text"] == log.read_text().split("\n")[found["line"] - 1]


@pytest.mark.thorough
@rows(
    "name, code, word",
    [
        ("cpu-eagle3-serves", 0, "The engine was stopped"),
        ("cpu-ngram-serves", 0, "no failure"),
        ("cpu-starting", 0, "it ends at: warm up"),
        ("cpu-port-busy", 1, "the port is already in use"),
    ],
)
def test_the_exit_code_says_whether_it_failed(name: str, code: int, word: str) -> None:
    done = run("-", given=(CORPUS / f"{name}.log").read_bytes())
    assert (done.returncode, done.stderr) == (code, b"")
    assert word in done.stdout.decode()


def test_what_is_no_log_of_the_engine_is_nothing_to_diagnose() -> None:
    done = run("-", given=b"INFO 1 vllm\ntorch.OutOfMemoryError: CUDA out of memory\n")
    assert done.returncode == 3
    assert b"is not an SGLang log" in done.stderr and done.stdout == b""
    assert run("-").returncode == 3
    done = run("-", "--output-format", "json", given=b"nothing\n")
    assert done.returncode == 3 and json.loads(done.stdout)["engine_log"] is False


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for place in (str(tmp_path / "none.log"), str(tmp_path)):
        done = run(place)
        assert done.returncode == 2 and b"cannot read" in done.stderr
    assert run(str(CORPUS / "cpu-tiny-pool.log"), "--engine", "9.x").returncode == 2
    assert run().returncode == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_encodings_of_other_systems(encoding: str) -> None:
    text = (CORPUS / "no-page-0.5.23.log").read_text().replace("\n", "\r\n")
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    done = run("-", given=mark + text.encode(encoding))
    assert done.returncode == 1 and b"[kv-pool-too-small]" in done.stdout


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\xff\xfe\x00\x9f\n" + b"\x80" * 99 + b"\n"
                    + (CORPUS / "no-page-0.5.23.log").read_bytes())  # fmt: skip
    assert run(str(log)).returncode in (1, 3)  # a UTF-16 mark may be meant as one
    log.write_bytes(b"\x00\xff\x9f\n" + (CORPUS / "no-page-0.5.23.log").read_bytes())
    assert run(str(log)).returncode == 1


def test_nothing_of_the_log_steers_the_terminal_or_gives_a_secret_away() -> None:
    given = (
        b"[2026-03-04 10:00:00] Load weight begin. avail mem=70.00 GB\n"
        b"[2026-03-04 10:00:01] Scheduler hit an exception: Traceback (most recent call last):\n"
        b'  File "/x/sglang/srt/a.py", line 1, in f\n    g()\n'
        b"ValueError: \x1b[2J\x07 [bold]x[/bold] --api-key sk-very-secret-0123456789\n"
    )
    for more in ((), ("--output-format", "json")):
        said = run("-", *more, given=given).stdout
        assert b"\x1b" not in said and b"\x07" not in said
        assert b"sk-very-secret" not in said
        assert b"[bold]x[/bold]" in said


def test_a_line_without_an_end_takes_no_memory() -> None:
    from speclaunch.serving.launch.engine_log import lines_of

    def lines(given: bytes) -> list[str]:
        return list(lines_of(io.BufferedReader(io.BytesIO(given))))  # type: ignore[arg-type]

    found = lines(b"[2026-03-04 10:00:00] " + b"x" * 3_000_000 + b"\nnext\n\nlast")
    assert [len(line) > 60_000 for line in found] == [True, False, False, False]
    assert [line.strip() for line in found[1:]] == ["next", "", "last"]
    assert lines(b"a\nb\n") == ["a\n", "b\n"]
    assert lines(b"\n\n\nabc\nd") == ["\n", "\n", "\n", "abc\n", "d"]
    assert lines(b"") == []


@pytest.mark.thorough
@pytest.mark.slow
def test_a_hundred_megabytes_take_less_than_twenty_seconds(tmp_path: Path) -> None:
    start = (CORPUS / "cpu-ngram-serves.log").read_bytes()
    start = start[: start.index(b"SIGTERM")].rpartition(b"\n")[0] + b"\n"
    served = b"".join(
        line + b"\n" for line in start.split(b"\n") if b"batch" in line or b"POST" in line
    )
    log = tmp_path / "long.log"
    log.write_bytes(start + served * (100_000_000 // len(served)))
    before = os.times()
    done = subprocess.run(
        [*program.COMMAND, "diagnose", str(log)], capture_output=True, check=False
    )
    assert done.returncode == 0
    after = os.times()  # of the processor: the machine may have other work
    took = after.children_user + after.children_system
    assert took - before.children_user - before.children_system < 20


def test_a_log_without_a_version_says_whose_flags_it_shows() -> None:
    said = run(str(CORPUS / "argparse-ambiguous.log")).stdout.decode()
    assert "the newest release" not in said
    assert "Flags are those of SGLang 0.5." in said and "--engine" in said
