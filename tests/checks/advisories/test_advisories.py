"""The database: each file is valid, its cases hold, and the derived files are current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from speclaunch.checks.advisory import Advisory, advisory_of, all_advisories
from speclaunch.checks.advisory_conditions import holds, matches
from speclaunch.checks.advisory_database import defects, osv_document
from speclaunch.checks.advisory_records import Condition, Confidence
from speclaunch.checks.rules.examine import check_rules
from speclaunch.checks.rules.interface import Severity, page
from speclaunch.checks.rules.registry import by_code
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.plan.settings import UnknownValueError
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.versions import within
from tests.support.checks.rules.harness import CASES, load_cases, plan_of, request_of
from tests.support.loops import over, rows

ROOT = Path(__file__).resolve().parents[3]


def made(**fields: object) -> Advisory:
    found = {
        "id": "SPA-2026-9999",
        "name": "a-bug",
        "summary": "A bug.",
        "details": "Its cause.",
        "symptom": "wrong-output",
        "introduced": "0.5.11",
        "fixed": "0.5.14",
        "when": {"algorithm": ["EAGLE"]},
        "references": ["https://github.com/sgl-project/sglang/pull/1"],
        "confidence": "named-change",
        "checked": "2026-11-26",
    }
    return msgspec.convert({**found, **fields}, Advisory)


def plan(version: str = "0.5.12.post1", facts: Facts | None = None, **args: object) -> Plan:
    asked = {"model_path": "m", "speculative_algorithm": "EAGLE", **args}
    return resolve(request_of(asked, None, {}, version), facts or Facts())


@pytest.mark.thorough
def test_the_derived_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "advisories.py"), "build", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ids_are_unique_and_in_order() -> None:
    ids = [advisory.id for advisory in all_advisories()]
    assert ids == sorted(set(ids))
    assert sorted(path.stem for path in (ROOT / "advisories").glob("*.yaml")) == ids
    assert len(ids) >= 20


@over(all_advisories(), lambda advisory: advisory.id)
def test_an_advisory_has_a_matching_case_and_a_near_miss(advisory: Advisory) -> None:
    cases = load_cases(CASES / f"{advisory.id}.yaml")
    kinds = {case.name.partition("_")[0] for case in cases}
    assert "fail" in kinds
    assert kinds & {"pass", "fixed"}
    assert all(case.engine in held_versions() for case in cases)


@over(all_advisories(), lambda advisory: advisory.id)
def test_an_advisory_has_its_page(advisory: Advisory) -> None:
    found = page(advisory.id)
    assert found.title == f"{advisory.id} {advisory.name}"
    assert found.summary == advisory.summary.removesuffix(".")
    assert found.sources == tuple(advisory.references)
    assert (ROOT / "docs" / "advisories" / f"{advisory.id}.md").is_file()


def has_edits(advisory: Advisory) -> bool:
    workaround = advisory.workaround
    return workaround is not None and bool(workaround.set or workaround.env)


@over(
    [one for one in all_advisories() if has_edits(one) and not one.requests],
    lambda advisory: advisory.id,
)
def test_a_workaround_clears_it(advisory: Advisory) -> None:
    assert advisory.workaround is not None
    for case in load_cases(CASES / f"{advisory.id}.yaml"):
        if case.fails:
            changed = {**case.args, **advisory.workaround.set}
            args = {name: value for name, value in changed.items() if value is not None}
            changed_env = {**case.env, **advisory.workaround.env}
            env = {name: value for name, value in changed_env.items() if value is not None}
            cleared = replace(case, args=args, env=env)
            assert not check_rules(plan_of(cleared), [advisory.rule()]).findings, case.name


def test_most_have_a_marker() -> None:
    marked = [one for one in all_advisories() if one.confidence is Confidence.MARKER]
    assert len(marked) >= 0.6 * len(all_advisories())


def test_it_is_found_by_id_and_name() -> None:
    first = all_advisories()[0]
    assert advisory_of(first.id.lower()) is first
    assert advisory_of(first.name) is first
    assert advisory_of("SPA-2026") is None
    rule = by_code(first.id)
    assert rule is not None
    assert rule.is_advisory


@pytest.mark.parametrize(
    ("fields", "versions", "text"),
    [
        ({}, ">=0.5.11,<0.5.14", "SGLang 0.5.11 to 0.5.13.post1; fixed in 0.5.14"),
        ({"fixed": "none"}, ">=0.5.11", "SGLang 0.5.11 and later; not fixed in {newest}"),
        (
            {"introduced": "unknown", "fixed": "unknown", "seen": ["0.5.11", "0.5.13.post1"]},
            ">=0.5.11,<=0.5.13.post1",
            "SGLang 0.5.11 (first report) to 0.5.13.post1 (last report)",
        ),
    ],
)
def test_ranges(fields: dict[str, object], versions: str, text: str) -> None:
    advisory = made(**fields)
    assert advisory.versions == versions
    assert advisory.release_range == text.format(newest=held_versions()[-1])
    assert within("0.5.12.post1", versions)
    assert not within("0.5.10.post1", versions)


@rows(
    "fields, severity",
    [
        ({"symptom": "refusal"}, Severity.ERROR),
        ({"symptom": "refusal", "confidence": "several-reports"}, Severity.WARNING),
        ({"symptom": "refusal", "requests": ["grammar"]}, Severity.INFO),
        ({"symptom": "hang"}, Severity.WARNING),
        ({"symptom": "hang", "confidence": "one-report"}, Severity.INFO),
        ({"symptom": "wrong-output", "requests": ["stop"]}, Severity.INFO),
        ({"symptom": "low-acceptance"}, Severity.WARNING),
        ({"symptom": "low-acceptance", "confidence": "several-reports"}, Severity.INFO),
        ({"symptom": "hang", "certain": False}, Severity.INFO),
        ({"symptom": "slow"}, Severity.INFO),
    ],
)
def test_severities(fields: dict[str, object], severity: Severity) -> None:
    assert made(**fields).severity is severity


@rows(
    "value, expected, result",
    [
        (16, 16, True),
        (16, [1, 16], True),
        (16, {"above": 15}, True),
        (16, {"above": 16}, False),
        (16, {"below": 16}, False),
        (None, {"above": 0}, False),
        ("fa3", {"not": ["fa3", "triton"]}, False),
        (None, {"not": ["fa3"]}, True),
        (None, "unset", True),
        ([], "set", False),
        (["a"], "set", True),
        (None, False, True),
        (0, True, False),
    ],
)
def test_values(value: object, expected: object, result: bool) -> None:
    assert matches(value, expected) is result


def test_a_part_that_does_not_hold_outweighs_an_unknown_one() -> None:
    amd = {"vendor": ["amd"]}
    both = msgspec.convert({"algorithm": ["NGRAM"], "hardware": amd}, Condition)
    assert not holds(both, plan())
    one = msgspec.convert({"algorithm": ["EAGLE"], "hardware": amd}, Condition)
    with pytest.raises(UnknownValueError):
        holds(one, plan())
    assert not holds(one, plan(facts=Facts(hardware=declare("h100"))))
    assert holds(one, plan(facts=Facts(hardware=declare("mi300x"))))


def test_one_of_several_groups_is_enough() -> None:
    groups = [{"algorithm": ["EAGLE"]}, {"hardware": {"vendor": ["amd"]}}]
    assert holds(msgspec.convert({"any": groups}, Condition), plan())


def test_capabilities() -> None:
    blackwell = msgspec.convert({"hardware": {"capability": [100, 103]}}, Condition)
    assert holds(blackwell, plan(facts=Facts(hardware=declare("b200"))))
    assert not holds(blackwell, plan(facts=Facts(hardware=declare("h100"))))
    assert not holds(blackwell, plan(facts=Facts(hardware=declare("mi300x"))))


def test_a_finding_names_range_requests_and_remedy() -> None:
    advisory = made(
        requests=["stop"], workaround={"text": "Set page_size to 16.", "set": {"page_size": 16}}
    )
    results = check_rules(plan(), [advisory.rule()])
    (finding,) = results.findings
    assert finding.severity is Severity.INFO
    assert finding.message == "A bug"
    assert "requests with stop" in finding.why
    assert "fixed in 0.5.14" in finding.why
    assert finding.fix is not None
    assert finding.fix.text == "Upgrade to SGLang 0.5.14, or set page_size to 16."
    assert finding.fix.applicability is None
    assert finding.is_minor_bug
    certain = made(workaround={"text": "Set page_size to 16.", "set": {"page_size": 16}})
    (finding,) = check_rules(plan(), [certain.rule()]).findings
    assert finding.fix is not None
    assert finding.fix.set == {"page_size": 16}


def test_an_undecided_advisory_is_not_listed_as_skipped() -> None:
    amd = made(when={"hardware": {"vendor": ["amd"]}})
    results = check_rules(plan(), [amd.rule()])
    assert not results.findings
    assert not results.skipped


def test_another_release_is_not_affected() -> None:
    rule = made().rule()
    assert check_rules(plan("0.5.13.post1"), [rule]).findings
    assert not check_rules(plan("0.5.14"), [rule]).findings
    assert not check_rules(plan("0.5.10.post1"), [rule]).findings


def test_osv() -> None:
    document = osv_document(made())
    assert document["id"] == "x_SPA-2026-9999"
    (affected,) = document["affected"]
    events = affected["ranges"][0]["events"]
    assert events == [{"introduced": "0.5.11"}, {"fixed": "0.5.14"}]
    assert affected["versions"] == ["0.5.11", "0.5.12.post1", "0.5.13.post1"]
    reported = {"introduced": "unknown", "fixed": "unknown", "seen": ["0.5.11"]}
    events = osv_document(made(**reported))["affected"][0]["ranges"][0]["events"]
    assert events == [{"introduced": "0.5.11"}, {"last_affected": "0.5.11"}]
    for advisory in all_advisories():
        found = osv_document(advisory)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT00:00:00Z", found["modified"])
        assert found["affected"][0]["versions"]


def test_the_place_is_that_of_a_conditional_argument() -> None:
    subject = plan(port=30007)
    rule = made(when={"arguments": {"port": 30007}}).rule()
    (finding,) = check_rules(subject, [rule]).findings
    assert finding.place == subject.place("port") != subject.place("speculative_algorithm")


@rows(
    "fields, defect",
    [
        ({"fixed": "0.5.11"}, "fixed in 0.5.11, not after 0.5.11"),
        ({"checked": "today"}, "`checked` is not a date: today"),
        ({"when": {"arguments": {"page_size": {"above": "x"}}}}, "invalid condition on page_size"),
        ({"fixed": "unknown"}, "`seen` is empty"),
        ({"references": []}, "no reference"),
    ],
)
def test_defects(fields: dict[str, object], defect: str) -> None:
    assert not list(defects(made()))
    assert any(text.startswith(defect) for text in defects(made(**fields)))
