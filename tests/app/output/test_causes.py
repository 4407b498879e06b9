"""What could not be judged: each cause once, with the number of its files."""

from __future__ import annotations

from msgspec.structs import replace

from speclaunch.app.output.findings import brief_causes, causes, left_out
from speclaunch.checks.lint.report import FileReport, Report
from speclaunch.checks.rules.interface import SkippedRule
from speclaunch.engine.facts.facts import UnknownFact, checkpoint_fact

NO_HARDWARE = "the hardware is unknown"
WHY, HELP = "it is nowhere", "pass --models DIR"


def file(
    path: str,
    *codes: str,
    reason: str = NO_HARDWARE,
    model: str | None = None,
    engine: str = "0.5.23",
    skipped: str | None = None,
    template: bool = False,
) -> FileReport:
    unknown = () if model is None else (UnknownFact(checkpoint_fact(model), WHY, HELP),)
    unjudged = tuple(SkippedRule(code, "x", reason) for code in codes)
    return FileReport(path, engine, (), unjudged, (), unknown, 1, skipped, template=template)


def test_one_file_says_all() -> None:
    assert causes([file("a.sh", "SPL304", "SPL257", model="org/m")]) == [
        f"a.sh: SPL304, SPL257 skipped: {NO_HARDWARE}",
        f"a.sh: unknown: the checkpoint org/m: {WHY} ({HELP})",
    ]


def test_what_files_share_is_one_line() -> None:
    files = [file(f"{at}.yaml", "SPL257", *(["SPL304"] if at % 2 else [])) for at in range(312)]
    files.append(file("own.sh", "SPL211", reason="$ALGORITHM is not set"))
    assert causes(files) == [
        "own.sh: SPL211 skipped: $ALGORITHM is not set",
        f"SPL257, SPL304 skipped: {NO_HARDWARE} (in 312 files)",
    ]


def test_a_file_at_several_versions_is_one_file() -> None:
    files = [file("a.sh", "SPL257", engine=engine) for engine in ("0.5.9", "0.5.23")]
    assert causes(files) == [f"a.sh: SPL257 skipped: {NO_HARDWARE}"]
    files.append(file("b.sh", "SPL257"))
    assert causes(files) == [f"SPL257 skipped: {NO_HARDWARE} (in 2 files)"]


def test_checkpoints_of_which_nothing_is_known_are_one_cause() -> None:
    files = [
        file(
            f"{at}.sh",
            "SPL401",
            reason=f"the checkpoint org/m{at} is not known",
            model=f"org/m{at}",
        )
        for at in range(300)
    ]
    assert causes(files) == [
        "SPL401 skipped: the checkpoint is not known (in 300 files)",
        "unknown: the checkpoint org/m0, the checkpoint org/m1, the checkpoint org/m2, "
        f"the checkpoint org/m3 and 296 more: {WHY} ({HELP}) (in 300 files)",
    ]


def test_one_checkpoint_of_several_files_is_named() -> None:
    files = [
        file(path, "SPL401", reason="the checkpoint org/m is not known", model="org/m")
        for path in ("a.sh", "b.sh")
    ]
    assert causes(files)[0].endswith(" skipped: the checkpoint org/m is not known (in 2 files)")


def test_a_short_name_is_taken_out_of_no_word() -> None:
    reason = "the checkpoint m is not known: more is missing"
    files = [
        file("a.sh", "SPL401", reason=reason, model="m"),
        file("b.sh", "SPL401", reason=reason.replace(" m ", " n "), model="n"),
    ]
    (shared, *_) = causes(files)
    assert shared == ("SPL401 skipped: the checkpoint is not known: more is missing (in 2 files)")


def test_versions_that_recipes_exclude() -> None:
    files = [
        file(f"{at}.yaml", skipped="it is for SGLang 0.5.23", engine="0.5.9") for at in range(3)
    ]
    assert causes(files) == ["not checked for 0.5.9: it is for SGLang 0.5.23 (in 3 files)"]
    assert causes(files[:1]) == ["0.yaml: not checked for 0.5.9: it is for SGLang 0.5.23"]


def test_templates() -> None:
    said = "is a Helm template: not checked; render it: helm template . | speclaunch lint -"
    files = tuple(file(f"{at}.yaml", skipped=said, template=True) for at in range(10))
    assert left_out(Report(files[:1])) == [f"0.yaml {said}"]
    (line,) = left_out(Report(files))
    assert line.startswith("0.yaml, 1.yaml, ") and " 7.yaml and 2 more are Helm templates: " in line
    assert causes(files) == []


def test_in_brief_rules_are_counted_and_a_missing_fact_is_named_once() -> None:
    unknown = file("a.sh", "SPL401", "SPL402", reason="the checkpoint org/m is not known: x")
    unknown = replace(unknown, unknown=file("a.sh", model="org/m").unknown)
    other = [file(f"{at}.sh", "SPL211", "SPL212", reason="$ALGORITHM is not set") for at in "bc"]
    hardware = [file(f"{at}.sh", "SPL304") for at in "bc"]
    assert brief_causes([unknown, *other, *hardware]) == [
        f"a.sh: unknown: the checkpoint org/m: {WHY} ({HELP})",
        "2 rules skipped: $ALGORITHM is not set (in 2 files)",
        "1 rule needs the hardware: set --hardware, for example h100:8",
    ]
    assert brief_causes(other[:1]) == ["b.sh: 2 rules skipped: $ALGORITHM is not set"]
    assert brief_causes([file("a.sh", "SPL304", "SPL257")]) == [
        "2 rules need the hardware: set --hardware, for example h100:8"
    ]
