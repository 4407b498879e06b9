"""Lint: every deployment of every file, at every engine version asked for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from speclaunch import reads
from speclaunch.engine.catalogue import Catalogue
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.command import spell
from speclaunch.errors import Place, Problem, SpeclaunchError
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.hardware import AUTO, choose_hardware
from speclaunch.importer.interface import recipe_name
from speclaunch.lint.collect import LintedFile
from speclaunch.lint.file_codes import FILE_CODES, NOT_UNDERSTOOD, PLACEHOLDER, UNREADABLE, FileCode
from speclaunch.lint.ignores import Ignore, complaints, kept, read_elsewhere, read_ignores
from speclaunch.lint.installed import installed_engine
from speclaunch.lint.judged_for import Judged, Part, excluding, for_version, parts
from speclaunch.lint.progress import waiting_for
from speclaunch.lint.report import FileReport, KnownCheckpoint, ToldFile
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Request, from_invocation, from_recipe
from speclaunch.record import record
from speclaunch.redaction import literals
from speclaunch.rules.examine import Examined, Lookup, examine, examine_together, is_compared
from speclaunch.rules.finding import Finding, Fix, Unjudged, in_order
from speclaunch.rules.interface import Rule
from speclaunch.rules.registry import all_rules
from speclaunch.rules.runner import secrets_of

if TYPE_CHECKING:
    from speclaunch.asking.asker import Asker
    from speclaunch.recipe.load import Recipe


MOST_COMPARED = 200
"""Deployments with errors that are compared with other releases, of a part of a file."""


@record
class Options:
    """How to lint. `versions` empty: each file's own, see `judged_for.parts`."""

    lookup: Lookup
    rules: tuple[Rule, ...]
    versions: tuple[str, ...] = ()
    asked: frozenset[str] | None = None
    """The codes that are asked, where not all are (else nobody knows which ignores are unused)."""
    installed: Callable[[], str | None] = installed_engine
    """Tells the catalogue of the engine on this machine."""
    asker: Asker | None = None
    """Asks the engines themselves; None: nobody is asked."""
    overrides_pins: bool = False
    """Whether `versions` were requested on the command line, and count more than a recipe's pin."""


@record(frozen=False)
class CheckedFile:
    """A file that was checked by itself, and may have to be compared with others."""

    path: str
    tasks: list[_Task]
    ignores: list[Ignore]
    is_compared: bool
    """Whether what is said of it depends on the other files."""
    options: Options

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
        found = parts(source, options)
    except SpeclaunchError as error:  # the engine that a recipe declares cannot be read
        found = [Part(_unread(source, error))]
    tasks = [_checked(part.source, part.judged, options) for part in found]
    plans = [plan for task in tasks for plan in task.plans]
    if any(plan.request.surroundings is not None for plan in plans):
        _compare_parts(tasks, options)
    ignores += read_elsewhere((one for task in tasks for one in task.findings), source.path)
    return CheckedFile(source.path, tasks, ignores, any(map(is_compared, plans)), options)


def compare(files: Iterable[CheckedFile]) -> None:
    """Ask the rules that look across files; what they find is added to its file, as far as the
    rule was asked for it."""
    compared = [file for file in files if file.is_compared]
    rules = {
        rule.code: rule
        for file in compared
        for rule in file.options.rules
        if not rule.of_deployments  # each file was asked by itself
    }
    asked = {
        id(task): {rule.code for rule in file.options.rules}
        for file in compared
        for task in file.tasks
    }
    _compare([task for file in compared for task in file.tasks], tuple(rules.values()), asked)


def reported(file: CheckedFile) -> ToldFile:
    """What is told of a file once it was compared."""
    reports = [_report(task, file.ignores) for task in file.tasks]
    # ignores are judged once per file, after every version had its say
    own = [one for one in file.ignores if one.place.path == file.path]
    more = tuple(complaints_of(own, file.options, file.path, reports[0].engine))
    if more:
        reports[0] = replace(reports[0], findings=(*reports[0].findings, *more))
    return ToldFile(tuple(reports), len(more))


def reports_of(source: LintedFile, options: Options) -> tuple[FileReport, ...]:
    """Return the reports of one file by itself, one for each version. Never raises for its content.

    Empty for a file that starts a server in a way no reader knows.
    """
    if source.not_read:
        return ()
    checked = check(source, options)
    compare([checked])
    return reported(checked).reports


def complaints_of(
    ignores: Iterable[Ignore], options: Options, path: str, engine: str
) -> Iterator[Finding]:
    """What is wrong with comments, as findings."""
    for notice, place, message, why in complaints(ignores, _known_codes(), asked=options.asked):
        if _is_told(notice, options):
            yield _noticed(notice, Problem(message, place), path, engine, why)


def _is_told(notice: FileCode, options: Options) -> bool:
    return options.asked is None or notice.code in options.asked


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
    note: str | None = None


def _checked(given: LintedFile, judged: Judged, options: Options) -> _Task:
    version = judged.version
    source = for_version(given, version, options)
    task = _Task(source, version, [], [], [], [], note=judged.note)
    for problem in source.problems:
        task.findings.append(_noticed(UNREADABLE, problem, source.path, version))
    for problem in source.remarks if _is_told(NOT_UNDERSTOOD, options) else ():
        task.findings.append(_noticed(NOT_UNDERSTOOD, problem, source.path, version))
    for problem in source.misread if _is_told(PLACEHOLDER, options) else ():
        task.findings.append(_noticed(PLACEHOLDER, problem, source.path, version))
    if source.template is not None:
        task.skipped = source.template
        return task
    if (wanted := excluding(source, version, options)) is not None:
        task.skipped = f"it is for SGLang {wanted}"
        return task
    refused = 0
    for number, (request, named) in enumerate(_requests(source, load_catalogue(version))):
        lookup = _lookup(named, options.lookup)
        examined = examine(request, lookup, options.rules)
        task.plans.append(examined.plan)
        findings = examined.judgement.findings
        may_be_taken = bool(judged.others and examined.judgement.errors)
        refused += may_be_taken
        if may_be_taken and refused <= MOST_COMPARED:
            from speclaunch.lint.other_releases import Asker, with_other_releases  # noqa: PLC0415

            asker = Asker(partial(_request, source, number), lookup, options.rules)
            findings = tuple(with_other_releases(findings, judged.others, asker))
        if options.asker is not None:
            findings += _asked(task, examined, options.asker, is_named=not judged.others)
        if source.recipe is None and any(w.condition for w in source.invocations[number].words):
            from speclaunch.lint.conditions import with_conditions  # noqa: PLC0415  scripts alone

            findings = tuple(with_conditions(findings, source.invocations[number]))
        if source.recipe is not None and any(f.place.path != source.path for f in findings):
            from speclaunch.lint.shipped_groups import at_the_choice  # noqa: PLC0415  recipes alone

            findings = tuple(at_the_choice(findings, source.path))
        task.findings += findings
        task.unjudged += examined.judgement.unjudged
        task.unknown += examined.plan.facts.unknown
    if refused > MOST_COMPARED:
        task.unknown.append(
            UnknownFact(
                f"the releases that accept {refused - MOST_COMPARED} more deployments",
                f"only {MOST_COMPARED} of a file are compared with other releases",
                "set --engine",
            )
        )
    return task


def _asked(task: _Task, examined: Examined, asker: Asker, *, is_named: bool) -> tuple[Finding, ...]:
    """What the engine itself adds. Raises NoJudgeError where it must be asked, and cannot be."""
    from speclaunch.lint.second_opinion import second_opinion  # noqa: PLC0415  asked by few

    with waiting_for(f"the validation of SGLang {examined.plan.request.version}"):
        opinion = asker.opinion(examined.plan, blamed=examined.judgement.blamed)
    if opinion is None:
        return ()
    if not opinion.is_lasting:
        reads.unrepeatable()
    found = second_opinion(opinion, examined.plan, examined.judgement.findings, is_named=is_named)
    task.unjudged += found.unjudged
    return found.findings


def _lookup(named: str, lookup: Lookup) -> Lookup:
    """With the hardware that the file names, unless it was said otherwise."""
    return replace(lookup, hardware=choose_hardware(lookup.hardware, named, None).hardware)


def _request(source: LintedFile, number: int, version: str) -> Request:
    return _requested(source, number, load_catalogue(version))[0]


def _requests(source: LintedFile, catalogue: Catalogue) -> Iterator[tuple[Request, str]]:
    """What each deployment asks, and the hardware that it is for."""
    count = len(source.invocations if source.recipe is None else source.recipe.roles)
    return (_requested(source, number, catalogue) for number in range(count))


def _requested(source: LintedFile, number: int, catalogue: Catalogue) -> tuple[Request, str]:
    """One of `_requests`."""
    if source.recipe is not None:
        return _of_recipe(source.recipe.roles[number], catalogue)
    invocation = source.invocations[number]
    name = invocation.name or recipe_name(source.path)
    return from_invocation(invocation, name, catalogue), invocation.hardware or AUTO


def _of_recipe(recipe: Recipe, catalogue: Catalogue) -> tuple[Request, str]:
    deployment = recipe.deployment
    spelling = spell(deployment.args, deployment.engine.env, catalogue)
    return from_recipe(recipe, spelling, catalogue), deployment.hardware.name


def _compare(
    tasks: Sequence[_Task], rules: Sequence[Rule], asked: Mapping[int, Container[str]]
) -> None:
    """The rules that look across the deployments of all files of one version."""
    by_path = {task.source.path: task for task in reversed(tasks)}
    for version in {task.version for task in tasks}:
        here = [task for task in tasks if task.version == version]
        plans = [plan for task in here for plan in task.plans]
        owners = {id(plan): task for task in here for plan in task.plans}
        for plan, finding in examine_together(plans, rules):
            owner = owners.get(id(plan)) or by_path[finding.place.path]
            if finding.code in asked[id(owner)]:
                owner.findings.append(finding)


def _compare_parts(tasks: Sequence[_Task], options: Options) -> None:
    """The rules about the parts of one deployment, which may be judged for several versions: each
    for that of its image. Where versions were asked for, all parts are judged for each."""
    rules = tuple(rule for rule in options.rules if rule.of_deployments)
    together = [tasks] if not options.versions else [[task] for task in tasks]
    for some in together:
        plans = [plan for task in some for plan in task.plans]
        owners = {id(plan): task for task in some for plan in task.plans}
        for plan, finding in examine_together(plans, rules):
            owners[id(plan)].findings.append(finding)


def _report(task: _Task, ignores: Sequence[Ignore]) -> FileReport:
    findings = sorted(
        _with_roles(_together(kept(task.findings, ignores)), task),
        key=in_order,
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
        task.note,
    )


def _together(findings: Iterable[Finding]) -> Iterable[Finding]:
    """What is said of several deployments at one place is said once."""
    found: dict[tuple[Place, str, str], Finding] = {}
    for one in findings:
        key = one.place, one.code, one.message
        before = found.get(key)
        if before is not None and before.fix == one.fix:
            about = tuple(dict.fromkeys((*before.deployments, *one.deployments)))
            others = tuple(dict.fromkeys((*before.others, *one.others)))
            found[key] = replace(one, deployments=about, others=others)
        else:
            found[key] = one
    return found.values()


def _with_roles(findings: Iterable[Finding], task: _Task) -> Iterator[Finding]:
    """Findings of a recipe with roles: what holds for some of them says for which."""
    recipe = task.source.recipe
    names = {} if recipe is None else {one.deployment.name: str(one.role) for one in recipe.parts}
    for one in findings:
        about = [names[place.name] for place in one.deployments if place.name in names]
        if not about or len(about) == len(names) or any(name in one.message for name in about):
            yield one
        else:
            said = f"of {', '.join(about)}"
            yield replace(one, why=f"{said}: {one.why}" if one.why else said)


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
