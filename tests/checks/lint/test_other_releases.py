"""Without a version: what some release takes is a warning that names it; with one it is exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.lint.report import Report
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.deployments.sources.requests import from_invocation
from speclaunch.engine.plan.request import Request
from speclaunch.engine.releases.catalogue import held_versions
from tests.support.lint_report import collect, lint

NEWEST = held_versions()[-1]
COMMAND = "python3 -m sglang.launch_server --model-path m {words}\n"
RECIPE = "name: x\nengine: {{version: {version}}}\nargs:\n  model_path: m\n  {words}\n"


def report(path: Path, *versions: str, installed: str | None = None) -> Report:
    options = Options(Lookup(), all_rules(), versions, installed=lambda: installed)
    return lint(collect([str(path)]), options)


def script(folder: Path, *words: str) -> Path:
    path = folder / "serve.sh"
    path.write_text("".join(COMMAND.format(words=one) for one in words))
    return path


def told(found: Report, *codes: str) -> list[Finding]:
    return [f for file in found.files for f in file.findings if f.code in codes or not codes]


@pytest.mark.thorough
def test_what_an_older_release_takes_is_a_warning_with_the_releases(tmp_path: Path) -> None:
    path = script(tmp_path, "--cuda-graph-max-bs 8")
    (found,) = told(report(path), "SPL002")
    assert found.severity is Severity.WARNING and found.engine == NEWEST
    assert "SGLang 0.4.6.post5 to 0.5.19 accept it; 0.5.20 and later reject it" in found.why
    assert found.fix is not None and "--engine" in found.fix.text
    for version in held_versions():  # what is said is so
        takes = version <= "0.5.19"
        errors = [f for f in told(report(path, version)) if f.severity is Severity.ERROR]
        assert bool(errors) is not takes or version > "0.5.19"


def test_one_release_alone(tmp_path: Path) -> None:
    (found,) = told(report(script(tmp_path, "--kt-amx-method x")), "SPL001")
    assert found.severity is Severity.WARNING
    assert "SGLang 0.5.4.post3 accepts it; 0.5.5.post3 and later reject it" in found.why


@pytest.mark.parametrize(
    "words",
    [
        "--no-such-argument 3",
        "--tp two",
        "--speculative-algorithm EAGLE --speculative-num-steps 3",
        # the one is in releases up to 0.5.4, the other from 0.5.11 on: nothing takes both
        "--kt-amx-method x --speculative-adaptive",
    ],
)
def test_what_no_release_takes_stays_an_error(tmp_path: Path, words: str) -> None:
    path = script(tmp_path, words)
    exact = [(f.code, f.place, f.severity, f.message) for f in told(report(path, NEWEST))]
    assert exact == [(f.code, f.place, f.severity, f.message) for f in told(report(path))]
    assert any(severity is Severity.ERROR for _, _, severity, _ in exact)


@pytest.mark.parametrize("value", ["--moe-a2a-backend my_fork", "--fp8-gemm-backend my_fork"])
def test_a_value_of_a_fork_leaves_the_other_arguments_a_warning(tmp_path: Path, value: str) -> None:
    """Old releases lack the argument, newer ones reject its value: one error under two codes."""
    found = told(report(script(tmp_path, f"--cuda-graph-max-bs 8 {value}")), "SPL002", "SPL003")
    assert [(f.code, f.severity.value) for f in found] == [
        ("SPL002", "warning"),
        ("SPL003", "error"),
    ]


@pytest.mark.thorough
def test_commands_of_a_file_are_judged_by_themselves(tmp_path: Path) -> None:
    path = script(
        tmp_path, "--cuda-graph-max-bs 8", "--no-such 1", "--cuda-graph-max-bs 8 --no-such 1"
    )
    found = told(report(path), "SPL001", "SPL002")
    assert [(f.place.line, f.code, f.severity.value) for f in found] == [
        (1, "SPL002", "warning"),
        (2, "SPL001", "error"),
        (3, "SPL002", "warning"),
        (3, "SPL001", "error"),
    ]


@pytest.mark.thorough
def test_where_a_version_is_known_the_verdict_is_exact(tmp_path: Path) -> None:
    path = script(tmp_path, "--cuda-graph-max-bs 8")
    for found in (report(path, "0.5.21"), report(path, installed="0.5.21")):
        (error,) = told(found, "SPL002")
        assert error.severity is Severity.ERROR and error.engine == "0.5.21"
    path.write_text("docker run lmsysorg/sglang:v0.5.21 " + path.read_text())
    assert [f.severity for f in told(report(path), "SPL002")] == [Severity.ERROR]
    path.write_text(path.read_text().replace("v0.5.21", "latest"))
    assert [f.severity for f in told(report(path), "SPL002")] == [Severity.WARNING]
    path.write_text(path.read_text().replace("latest", "nightly-dev-20260101-abc"))
    assert [f.severity for f in told(report(path), "SPL002")] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ('"0.5.20"', "error"),
        ('">=0.5.5"', "error"),
        ('">=0.5.2"', "warning"),
        ("null", "warning"),
    ],
)
def test_a_recipe_is_for_the_releases_that_it_names(
    tmp_path: Path, version: str, severity: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(RECIPE.format(version=version, words="moe_a2a_backend: no_such"))
    assert {f.severity.value for f in told(report(path), "SPL003")} == {"error"}
    path.write_text(RECIPE.format(version=version, words="kt_amx_method: x"))  # 0.5.4 alone has it
    assert {f.severity.value for f in told(report(path), "SPL001")} == {severity}


@pytest.mark.parametrize(
    ("named", "held", "note"),
    [
        ("0.4.3", "0.4.6.post5", "older than every known release"),
        ("0.5.20rc1", "0.5.20", "0.5.20 of the same line is used"),
        ("0.5.19.dev123", "0.5.19", "0.5.19 of the same line is used"),
        ("0.5.0", "0.4.10.post2", "not a known release"),
        ("9.9", NEWEST, "newer than every known release"),
        ("0.5.13", "0.5.13.post1", None),
        ("0.5.13.post1", "0.5.13.post1", None),
    ],
)
def test_an_unknown_release_is_judged_as_the_nearest_with_a_word(
    tmp_path: Path, named: str, held: str, note: str | None
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(RECIPE.format(version=f'"{named}"', words="tp_size: 1"))
    (file,) = report(path).files
    assert (file.engine, file.deployments, file.skipped, file.unreadable) == (held, 1, None, False)
    assert file.note is None if note is None else note in str(file.note)
    path = script(tmp_path, "--tp 1")
    path.write_text(f"docker run lmsysorg/sglang:v{named}-cu129 {path.read_text()}")
    (file,) = report(path).files if named.count(".") > 1 else report(tmp_path / "x.yaml").files
    assert file.engine == held
    assert file.note is None if note is None else note in str(file.note)


@pytest.mark.thorough
def test_a_bounded_number_of_deployments_is_compared_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speclaunch.checks.lint.run.MOST_COMPARED", 2)
    path = script(tmp_path, "--tp 2", *["--cuda-graph-max-bs 8"] * 4)
    found = report(path)
    severities = [one.severity for one in told(found, "SPL002")]
    assert severities == [Severity.WARNING] * 2 + [Severity.ERROR] * 2
    (unknown,) = [one for file in found.files for one in file.unknown if "more" in one.what]
    assert unknown.what == "the releases that accept 2 more deployments"
    assert unknown.why == "only 2 deployments of a file are compared with other releases"


def test_a_deployment_is_compared_without_the_others_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from speclaunch.checks.lint import run

    asked: list[int] = []

    def counted(invocation: Invocation, *rest: Any) -> Request:
        asked.append(invocation.words[0].place.line or 0)
        return from_invocation(invocation, *rest)

    monkeypatch.setattr(run, "from_invocation", counted)
    report(script(tmp_path, "--tp 2", "--cuda-graph-max-bs 8", "--tp 4"))
    assert asked.count(1) == asked.count(3) == 1 < asked.count(2)
