"""What `--check` accepts, and what a command's exit code means."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from speclaunch.core.errors import InputError, LaunchError
from speclaunch.measure.prove.answers import ProofAnswer
from speclaunch.measure.prove.contract_servers import FieldResult, FieldRow
from speclaunch.measure.releases.launched import ReleaseAnswers
from speclaunch.measure.releases.search import Check, CheckedServer, ProbeVerdict, check_of
from tests.support.loops import rows


class Answers:
    """A server that gives fixed answers."""

    def __init__(self, ids: tuple[int, ...] = (1, 2, 3, 4), steps: int = 2) -> None:
        self.found = ReleaseAnswers((ProofAnswer(ids, 3, steps),))

    def observe(self) -> ReleaseAnswers:
        return self.found

    def difference(self, before: ReleaseAnswers, after: ReleaseAnswers) -> str | None:
        same = before.answers[0].ids == after.answers[0].ids
        return None if same else "token 2 is 7 instead of 2"


def server(folder: Path, answers: Any = None, **more: Any) -> CheckedServer:
    return CheckedServer("0.5.20", "http://127.0.0.1:1", answers or Answers(), folder, **more)


@pytest.mark.parametrize(
    ("text", "is_start", "compares", "is_single"),
    [
        ("start", True, False, True),
        ("same-output", False, True, False),
        ("contract", False, True, True),
        (" acceptance >= 2.5 ", False, False, False),
        (f"{sys.executable} -c pass", False, False, False),
    ],
)
def test_a_check_is_read(text: str, *, is_start: bool, compares: bool, is_single: bool) -> None:
    found = check_of(text, 1)
    assert found.text == text.strip()
    assert (found.is_start, found.reference is not None) == (is_start, compares)
    assert (found.is_single, found.is_contract) == (is_single, text == "contract")


@rows(
    "text, message, remedy",
    [
        ("acceptance", "has no bound", "quoted for the shell"),
        ("acceptance>3", "has no bound", "'acceptance>=3'"),
        ("strat", "no program 'strat'", "did you mean `start`?"),
        ("no-such-program x", "no program 'no-such-program'", "use one of start"),
        ("'", "cannot read the command", None),
        ("", "the check is empty", "use one of"),
    ],
)
def test_an_unusable_check_is_refused(text: str, message: str, remedy: str | None) -> None:
    with pytest.raises(InputError) as caught:
        check_of(text, 1)
    (problem,) = caught.value.problems
    assert message in problem.message and (remedy or "") in (problem.help or "")


def command(*lines: str, more: str = "", seconds: float = 30) -> Check:
    return check_of(f"{shlex.join([sys.executable, '-c', chr(10).join(lines)])} {more}", seconds)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (0, ProbeVerdict.GOOD),
        (1, ProbeVerdict.BAD),
        (124, ProbeVerdict.BAD),
        (125, ProbeVerdict.SKIP),
    ],
)
def test_an_exit_code_is_a_verdict(code: int, verdict: ProbeVerdict, tmp_path: Path) -> None:
    found = command(f"raise SystemExit({code})").evaluate(server(tmp_path), None)
    assert found.verdict is verdict


@pytest.mark.parametrize("line", ["raise SystemExit(126)", "import os; os.kill(os.getpid(), 9)"])
def test_a_command_that_cannot_run_ends_the_search(line: str, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="could not test"):
        command(line).evaluate(server(tmp_path), None)


def test_a_command_gets_the_server_and_no_shell(tmp_path: Path) -> None:
    lines = (
        "import os, sys",
        "expected = ['http://127.0.0.1:1', '0.5.20']",
        "names = ('SPECLAUNCH_URL', 'SPECLAUNCH_ENGINE')",
        "sys.exit([os.environ[name] for name in names] != expected or sys.argv[1:] != ['$HOME;'])",
    )
    check = command(*lines, more="'$HOME;'")
    assert check.evaluate(server(tmp_path), None).verdict is ProbeVerdict.GOOD


@pytest.mark.thorough
def test_a_late_command_ends_with_its_children(tmp_path: Path) -> None:
    lines = (
        "import subprocess, sys, time",
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))",
        "time.sleep(60)",
    )
    found = command(*lines, seconds=3).evaluate(server(tmp_path), None)
    assert (found.verdict, found.reason) == (ProbeVerdict.BAD, "not finished within 3 s")
    child = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(("least", "verdict"), [(2.0, ProbeVerdict.GOOD), (2.1, ProbeVerdict.BAD)])
def test_the_acceptance_length_is_compared(
    least: float, verdict: ProbeVerdict, tmp_path: Path
) -> None:
    found = check_of(f"acceptance>={least}", 1).evaluate(server(tmp_path), None)
    assert (found.verdict, found.reason) == (verdict, "acceptance length 2.00")


def test_no_verify_step_is_bad(tmp_path: Path) -> None:
    found = check_of("acceptance>=1", 1).evaluate(server(tmp_path, Answers(steps=0)), None)
    assert found.verdict is ProbeVerdict.BAD


def test_answers_are_compared_with_the_good_release(tmp_path: Path) -> None:
    check = check_of("same-output", 1)
    assert check.reference is not None
    reference = check.reference(server(tmp_path))
    assert check.evaluate(server(tmp_path), reference).verdict is ProbeVerdict.GOOD
    found = check.evaluate(server(tmp_path, Answers((1, 7, 3, 4))), reference)
    assert found.verdict is ProbeVerdict.BAD and "token 2 is 7 instead of 2" in found.reason


def rows(broken: tuple[str, ...]) -> tuple[FieldRow, ...]:
    """A contract with fields that differ, undocumented."""
    return tuple(
        FieldRow(name, FieldResult.DIFFERS if name in broken else FieldResult.SAME)
        for name in ("stop", "n")
    )


@pytest.mark.parametrize(
    ("known", "broken", "verdict", "reason"),
    [
        ((), (), ProbeVerdict.GOOD, "no additional request field compared to the good release"),
        (
            ("stop",),
            ("stop",),
            ProbeVerdict.GOOD,
            "no additional request field compared to the good release",
        ),
        (("stop",), ("stop", "n"), ProbeVerdict.BAD, "n"),
    ],
)
def test_a_contract_is_compared_with_the_good_release(
    known: tuple[str, ...],
    broken: tuple[str, ...],
    verdict: ProbeVerdict,
    reason: str,
    tmp_path: Path,
) -> None:
    check = check_of("contract", 1)
    assert check.reference is not None
    reference = check.reference(server(tmp_path, fields=lambda: rows(known)))
    found = check.evaluate(server(tmp_path, fields=lambda: rows(broken)), reference)
    assert (found.verdict, found.reason) == (verdict, f"speculation changes {reason}")


def test_a_field_that_the_good_release_did_not_test_is_reported(tmp_path: Path) -> None:
    check = check_of("contract", 1)
    reference = ReleaseAnswers(fields=(FieldRow("min_p", FieldResult.NOT_TESTED),))
    probed = (FieldRow("min_p", FieldResult.DIFFERS),)
    found = check.evaluate(server(tmp_path, fields=lambda: probed), reference)
    assert found.verdict is ProbeVerdict.GOOD and found.reason.endswith(
        "(not tested in the good release: min_p)"
    )
