"""What is told of a file as JSON and back: for what is remembered, and between processes.

Whatever is not of this form is refused.
"""

from __future__ import annotations

from typing import Any, TypeVar

from speclaunch.errors import Place
from speclaunch.facts.checkpoint import FactSource, Origin
from speclaunch.facts.unknown import UnknownFact
from speclaunch.lint.report import FileReport, KnownCheckpoint, ToldFile
from speclaunch.rules.finding import DeploymentPlace, Finding, Fix, Severity, Unjudged

T = TypeVar("T")


def told_json(told: ToldFile) -> list[Any]:
    """What is told of a file, as lists."""
    return [[_report(report) for report in told.reports], told.complaints]


def told_from(said: Any) -> ToldFile:
    """The same from its JSON. Raises ValueError, TypeError or KeyError for any other."""
    reports, complaints = said
    found = tuple(_report_from(one) for one in _list(reports))
    if not found or not 0 <= _is(int, complaints) <= len(found[0].findings):
        raise ValueError("not a report")
    return ToldFile(found, complaints)


def _report(report: FileReport) -> list[Any]:
    reasons = list(dict.fromkeys(one.reason for one in report.unjudged))
    number = {reason: at for at, reason in enumerate(reasons)}
    return [
        report.path,
        report.engine,
        [_finding(one) for one in report.findings],
        [reasons, [[one.code, one.rule, number[one.reason]] for one in report.unjudged]],
        [_checkpoint(one) for one in report.checkpoints],
        [[one.what, one.why, one.help] for one in report.unknown],
        report.deployments,
        report.skipped,
        report.unreadable,
        report.template,
        report.note,
    ]


def _report_from(said: Any) -> FileReport:
    path, engine, findings, unjudged, checkpoints, unknown, count, *more = said
    skipped, unread, template, note = more
    reasons, rules = unjudged
    _list(reasons)
    return FileReport(
        _is(str, path),
        _is(str, engine),
        tuple(_finding_from(one) for one in _list(findings)),
        tuple(
            Unjudged(_is(str, code), _is(str, rule), _is(str, reasons[_is(int, at)]))
            for code, rule, at in _list(rules)
        ),
        tuple(_checkpoint_from(one) for one in _list(checkpoints)),
        tuple(
            UnknownFact(_is(str, what), _is(str, why), _text(help_))
            for what, why, help_ in _list(unknown)
        ),
        _is(int, count),
        _text(skipped),
        _is(bool, unread),
        _is(bool, template),
        _text(note),
    )


def _finding(one: Finding) -> list[Any]:
    return [
        one.code,
        one.rule,
        one.severity.value,
        one.message,
        one.why,
        None if one.fix is None else _fix(one.fix),
        _place(one.place),
        one.engine,
        [_place(other) for other in one.others],
        [[_place(other.place), other.name] for other in one.deployments],
        dict(one.arguments),
    ]


def _fix(fix: Fix) -> list[Any]:
    if fix.applicability is None:
        return [fix.text]
    return [fix.text, fix.safe, dict(fix.set), dict(fix.env), fix.rename]


def _fix_from(said: Any) -> Fix:
    text, *edits = _list(said)
    if not edits:
        return Fix(_is(str, text))
    safe, values, variables, rename = edits
    env = {name: _text(value) for name, value in _is(dict, variables).items()}
    renamed = None
    if rename is not None:
        wrong, right = rename
        renamed = (_is(str, wrong), _is(str, right))
    return Fix(_is(str, text), _is(dict, values), env, safe=_is(bool, safe), rename=renamed)


def _place(place: Place) -> list[Any]:
    return [place.path, place.line, place.column, place.length, place.text, place.hidden]


def _place_from(said: Any) -> Place:
    path, line, column, length, text, hidden = said
    return Place(
        _is(str, path),
        _is(int, line),
        _is(int, column),
        _is(int, length),
        _text(text),
        _is(bool, hidden),
    )


def _finding_from(said: Any) -> Finding:
    code, rule, severity, message, why, fix, place, engine, others, deployments, arguments = said
    return Finding(
        _is(str, code),
        _is(str, rule),
        Severity(severity),
        _is(str, message),
        _is(str, why),
        None if fix is None else _fix_from(fix),
        _place_from(place),
        _is(str, engine),
        tuple(_place_from(one) for one in _list(others)),
        tuple(
            DeploymentPlace(_place_from(place), _is(str, name))
            for place, name in _list(deployments)
        ),
        {name: _is(str, value) for name, value in _is(dict, arguments).items()},
    )


def _checkpoint(one: KnownCheckpoint) -> list[Any]:
    origin = one.origin
    return [
        one.name,
        None
        if origin is None
        else [
            origin.provenance.value,
            origin.where,
            origin.read,
            origin.revision,
            origin.doubt,
            origin.assumed,
        ],
        list(one.unread),
    ]


def _checkpoint_from(said: Any) -> KnownCheckpoint:
    name, told, unread = said
    origin = None
    if told is not None:
        provenance, where, *more = told
        read, revision, doubt, assumed = (_text(one) for one in more)
        origin = Origin(FactSource(provenance), _is(str, where), read, revision, doubt, assumed)
    return KnownCheckpoint(_is(str, name), origin, tuple(_is(str, one) for one in _list(unread)))


def _is(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"not of type {kind.__name__}")
    found: T = value
    return found


def _text(value: Any) -> str | None:
    return None if value is None else _is(str, value)


def _list(value: Any) -> list[Any]:
    return _is(list, value)
