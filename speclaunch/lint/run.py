"""Lint: every deployment of every file, at every engine version asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from speclaunch import reads
from speclaunch.engine.catalogue import Catalogue, held_versions, resolve_version
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.command import spell
from speclaunch.engine.secrets import literals
from speclaunch.errors import Place, Problem, SpeclaunchError
from speclaunch.facts.declared_gpus import AUTO
from speclaunch.facts.engines import declared
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.hardware_choice import choose_hardware
from speclaunch.importer.images import image_version
from speclaunch.importer.interface import Invocation
from speclaunch.importer.recipe_name import recipe_name
from speclaunch.lint.collect import LintedFile
from speclaunch.lint.file_codes import FILE_CODES, NOT_UNDERSTOOD, PLACEHOLDER, UNREADABLE, FileCode
from speclaunch.lint.ignores import Ignore, complaints, kept, read_ignores
from speclaunch.lint.installed import installed_engine
from speclaunch.lint.report import FileReport, KnownCheckpoint, Report, ToldFile
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Request, from_invocation, from_recipe
from speclaunch.record import record
from speclaunch.rules.examine import Lookup, examine, examine_together, is_compared
from speclaunch.rules.finding import Finding, Fix, Unjudged
from speclaunch.rules.interface import Rule
from speclaunch.rules.registry import all_rules
from speclaunch.rules.runner import secrets_of


@record
class Options:
    """How to lint. `versions` empty: each file's own, see `_parts`."""

    lookup: Lookup
    rules: tuple[Rule, ...]
    versions: tuple[str, ...] = ()
    all_asked: bool = True
    """Whether no rule was left out (else nobody knows which ignores are unused)."""
    installed: Callable[[], str | None] = installed_engine
    """Tells the catalogue of the engine on this machine."""


def lint(sources: Iterable[LintedFile], options: Options) -> Report:
    """Check every source. Never raises for what a source holds."""
    read: list[LintedFile] = []
    checked: list[CheckedFile] = []
    for source in sources:
        read.append(source)
        if not source.not_read:
            checked.append(check(source, options))
    compare(checked, options)
    done: set[str] = set()
    files: list[FileReport] = []
    for one in checked:
        told = reported(one, options)
        files += told.reports if one.path not in done else told.without_complaints
        done.add(one.path)
    return Report(tuple(files), tuple(source.path for source in read if source.not_read))


@record(frozen=False)
class CheckedFile:
    """A file that was checked by itself, and may have to be compared with others."""

    path: str
    tasks: list[_Task]
    ignores: list[Ignore]
    is_compared: bool
    """Whether what is said of it depends on the other files."""

    @property
    def secrets(self) -> list[str]:
        """The secret values in it, as far as anything tells that they are."""
        plans = [plan for task in self.tasks for plan in task.plans]
        found = [secret for plan in plans for secret in secrets_of(plan.request)]
        for task in self.tasks[:1]:
            for line in task.source.text.splitlines():
                found += literals(line)
        return found


def check(given: LintedFile, options: Options) -> CheckedFile:
    """Check one file at all its versions. Never raises for what is in it."""
    source = replace(given, recipe=given.recipe or given.rest)
    ignores = read_ignores(source.text, source.path, source.commands)
    try:
        parts = _parts(source, options)
    except SpeclaunchError as error:  # the engine that a recipe declares cannot be read
        parts = [(_unread(source, error), held_versions()[-1])]
    tasks = [_checked(part, version, options) for part, version in parts]
    plans = [plan for task in tasks for plan in task.plans]
    return CheckedFile(source.path, tasks, ignores, any(map(is_compared, plans)))


def compare(files: Iterable[CheckedFile], options: Options) -> None:
    """Ask the rules that look across files; what they find is added to its file."""
    _compare([task for file in files if file.is_compared for task in file.tasks], options)


def reported(file: CheckedFile, options: Options) -> ToldFile:
    """What is told of a file once it was compared."""
    reports = [_report(task, file.ignores) for task in file.tasks]
    # ignores are judged once per file, after every version had its say
    said = complaints(file.ignores, _known_codes(), all_asked=options.all_asked)
    more = tuple(
        _noticed(notice, Problem(message, place), file.path, reports[0].engine, why)
        for notice, place, message, why in said
    )
    if more:
        reports[0] = replace(reports[0], findings=(*reports[0].findings, *more))
    return ToldFile(tuple(reports), len(more))


@cache
def _known_codes() -> tuple[str, ...]:
    return (*(rule.code for rule in all_rules()), *(notice.code for notice in FILE_CODES))


def _unread(source: LintedFile, error: SpeclaunchError) -> LintedFile:
    place = source.recipe.place("engine", "catalogue") if source.recipe else Place(source.path)
    problems = tuple(replace(problem, place=place) for problem in error.problems)
    return replace(source, recipe=None, problems=problems)


@record(frozen=False)
class _Task:
    """One file at one version while it is being checked."""

    source: LintedFile
    version: str
    plans: list[Plan]
    findings: list[Finding]
    unjudged: list[Unjudged]
    unknown: list[UnknownFact]
    skipped: str | None = None


def _checked(source: LintedFile, version: str, options: Options) -> _Task:
    task = _Task(source, version, [], [], [], [])
    for problem in source.problems:
        task.findings.append(_noticed(UNREADABLE, problem, source.path, version))
    for problem in source.remarks:
        task.findings.append(_noticed(NOT_UNDERSTOOD, problem, source.path, version))
    for problem in source.misread:
        task.findings.append(_noticed(PLACEHOLDER, problem, source.path, version))
    if source.template is not None:
        task.skipped = source.template
        return task
    if source.recipe is not None:
        wanted = source.recipe.deployment.engine
        if not wanted.specifier.contains(version):
            task.skipped = f"it is for SGLang {wanted.version}"
            return task
    lookup = _lookup(source, options.lookup)
    for request in _requests(source, load_catalogue(version)):
        examined = examine(request, lookup, options.rules)
        task.plans.append(examined.plan)
        task.findings += examined.judgement.findings
        task.unjudged += examined.judgement.unjudged
        task.unknown += examined.plan.facts.unknown
    return task


def _lookup(source: LintedFile, lookup: Lookup) -> Lookup:
    """With the hardware that a recipe names, unless it was said otherwise."""
    named = source.recipe.deployment.hardware.name if source.recipe is not None else AUTO
    return replace(lookup, hardware=choose_hardware(lookup.hardware, named, None).hardware)


def _requests(source: LintedFile, catalogue: Catalogue) -> list[Request]:
    if source.recipe is not None:
        deployment = source.recipe.deployment
        spelling = spell(deployment.args, deployment.engine.env, catalogue)
        return [from_recipe(source.recipe, spelling, catalogue)]
    return [
        from_invocation(invocation, invocation.name or recipe_name(source.path), catalogue)
        for invocation in source.invocations
    ]


def _parts(source: LintedFile, options: Options) -> list[tuple[LintedFile, str]]:
    """What a file holds by the version that it is judged for: those asked for, else the file's own.

    Commands in a container are judged for the release of their image, so that one file can have
    several.
    """
    if source.template is not None:  # told once
        return [(source, (options.versions or (_version(source, options),))[0])]
    if options.versions:
        first, *others = options.versions
        if not (source.recipe or source.invocations):
            return [(source, first)]
        told = _told(source)
        return [(source, first), *((told, version) for version in others)]
    if source.recipe is not None or not source.invocations:
        return [(source, _version(source, options))]
    by_version: dict[str, list[Invocation]] = {}
    for invocation in source.invocations:
        version = image_version(invocation.image) or _version(source, options)
        by_version.setdefault(version, []).append(invocation)
    parts = [
        (replace(source, invocations=tuple(found)), version)
        for version, found in by_version.items()
    ]
    return parts[:1] + [(_told(part), version) for part, version in parts[1:]]


def _told(source: LintedFile) -> LintedFile:
    """Without what could not be read: whatever the version, it is told once."""
    return replace(source, problems=(), remarks=(), misread=())


def _version(source: LintedFile, options: Options) -> str:
    """The file's own version: the recipe's pin, the installed engine where it fits, the newest
    that fits."""
    if source.recipe is not None:
        wanted = source.recipe.deployment.engine
        if wanted.catalogue is not None:
            near = source.recipe.path.parent
            return declared(wanted.catalogue, wanted.python, wanted.pinned, near)
        if wanted.pinned is not None:
            return resolve_version(wanted.pinned).held
        installed = reads.engine(options.installed())
        if installed is not None and wanted.specifier.contains(installed):
            return installed
        fitting = list(wanted.specifier.filter(held_versions()))
        return fitting[-1] if fitting else held_versions()[-1]
    return reads.engine(options.installed()) or held_versions()[-1]


def _compare(tasks: Sequence[_Task], options: Options) -> None:
    """The rules that look across the deployments of all files of one version."""
    by_path = {task.source.path: task for task in reversed(tasks)}
    for version in {task.version for task in tasks}:
        here = [task for task in tasks if task.version == version]
        plans = [plan for task in here for plan in task.plans]
        owners = {id(plan): task for task in here for plan in task.plans}
        for plan, finding in examine_together(plans, options.rules):
            owner = owners.get(id(plan)) or by_path[finding.place.path]
            owner.findings.append(finding)


def _report(task: _Task, ignores: Sequence[Ignore]) -> FileReport:
    findings = sorted(
        {(f.place, f.code, f.message): f for f in kept(task.findings, ignores)}.values(),
        key=lambda f: (f.place.path, f.place.line, f.place.column, f.code),
    )
    return FileReport(
        task.source.path,
        task.version,
        tuple(findings),
        tuple(dict.fromkeys(task.unjudged)),
        _known(task.plans),
        tuple(dict.fromkeys(task.unknown)),
        len(task.plans),
        task.skipped,
        bool(task.source.problems),
        task.source.template is not None,
    )


def _known(plans: Iterable[Plan]) -> tuple[KnownCheckpoint, ...]:
    found = {one.name: one for plan in plans for one in plan.facts.checkpoints}
    return tuple(
        KnownCheckpoint(one.name, one.origin, tuple(sorted(one.unread))) for one in found.values()
    )


def _noticed(notice: FileCode, problem: Problem, path: str, version: str, why: str = "") -> Finding:
    return Finding(
        notice.code,
        notice.name,
        notice.severity,
        problem.message,
        why,
        Fix(problem.help) if problem.help else None,
        problem.place or Place(path),
        version,
    )
