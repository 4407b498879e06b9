"""Lint one file: choose its engine versions, check each deployment, compare, report."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from speclaunch.checks.lint.collect import (
    Ignore,
    LintedFile,
    complaints,
    read_elsewhere,
    read_ignores,
    unsuppressed,
)
from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.lint.report import (
    CheckedFile,
    EngineChoice,
    FilePart,
    FileReport,
    FileResult,
    KnownCheckpoint,
)
from speclaunch.checks.lint.workers import waiting_for
from speclaunch.checks.rules.examine import check_request, check_together, is_compared
from speclaunch.checks.rules.interface import Finding, Rule, Severity, in_order
from speclaunch.checks.rules.registry import NOT_UNDERSTOOD, PLACEHOLDER, UNREADABLE
from speclaunch.core import Place, SpeclaunchError, reads
from speclaunch.deployments import (
    Invocation,
    from_invocation,
    from_recipe,
    image_release,
    recipe_name,
)
from speclaunch.engine import (
    AUTO,
    Catalogue,
    Request,
    ResolvedVersion,
    UnknownFact,
    declared,
    held_versions,
    is_of_its_line,
    named,
    overrides_pin,
    render_args,
)
from speclaunch.engine import load as load_catalogue

if TYPE_CHECKING:
    from speclaunch.deployments import Recipe


MOST_COMPARED = 200
"""Maximum number of failing deployments in a file part to compare with other releases."""


def check(file: LintedFile, options: Options) -> CheckedFile:
    """Check one file at all its versions. Never raises because of the file's content."""
    source = replace(file, recipe=file.recipe or file.rest)
    ignores = read_ignores(source.text, source.path, source.commands)
    try:
        parts = parts_of(source, options)
    except SpeclaunchError as error:  # the engine that a recipe declares cannot be read
        place = source.recipe.place("engine", "catalogue") if source.recipe else Place(source.path)
        problems = tuple(replace(problem, place=place) for problem in error.problems)
        unread = replace(source, recipe=None, problems=problems)
        parts = [FilePart(unread, EngineChoice(held_versions()[-1]))]
    for part in parts:
        _check_part(part, options)
    checked = CheckedFile(source.path, parts, ignores, options)
    checked.is_compared = any(map(is_compared, checked.plans))
    if any(plan.request.server_context is not None for plan in checked.plans):
        # Each part of a deployment is checked for the version of its image. With requested
        # versions all parts are checked for each.
        rules = tuple(rule for rule in options.rules if rule.of_deployments)
        for some in [[part] for part in parts] if options.versions else [parts]:
            for owner, finding in _findings_across(some, rules):
                owner.findings.append(finding)
    ignores += read_elsewhere((finding for part in parts for finding in part.findings), source.path)
    return checked


def compare(files: Iterable[CheckedFile]) -> None:
    """Run cross-file rules and attach their findings to the files that selected them."""
    compared = [file for file in files if file.is_compared]
    rules = {rule.code: rule for file in compared for rule in file.options.rules}
    across = [rule for rule in rules.values() if not rule.of_deployments]  # `check` ran the others
    selected = {
        id(part): {rule.code for rule in file.options.rules}
        for file in compared
        for part in file.parts
    }
    parts = [part for file in compared for part in file.parts]
    for version in {part.engine.version for part in parts}:
        here = [part for part in parts if part.engine.version == version]
        for owner, finding in _findings_across(here, across, parts):
            if finding.code in selected[id(owner)]:
                owner.findings.append(finding)


def _findings_across(
    parts: Sequence[FilePart], rules: Sequence[Rule], all_parts: Sequence[FilePart] = ()
) -> Iterator[tuple[FilePart, Finding]]:
    """Yield the findings of cross-file rules, each with the part of its plan, else of its path."""
    owners = {id(plan): part for part in parts for plan in part.plans}
    by_path = {part.source.path: part for part in reversed(all_parts)}
    for plan, finding in check_together([plan for part in parts for plan in part.plans], rules):
        yield owners.get(id(plan)) or by_path[finding.place.path], finding


def result_of(file: CheckedFile) -> FileResult:
    """Return the reports of one file after cross-file rules ran."""
    reports = [_report(part, file.ignores) for part in file.parts]
    # ignore comments are checked once per file, after the findings of all versions
    own = [ignore for ignore in file.ignores if ignore.place.path == file.path]
    more = tuple(complaints(own, file.path, reports[0].engine, file.options.selected_codes))
    if more:
        reports[0] = replace(reports[0], findings=(*reports[0].findings, *more))
    return FileResult(file.path, tuple(reports), len(more))


def _check_part(part: FilePart, options: Options) -> None:
    version = part.engine.version
    part.source = source = _for_version(part.source, version, options)
    for notice, problems in (
        (UNREADABLE, source.problems),
        (NOT_UNDERSTOOD, source.remarks),
        (PLACEHOLDER, source.misread),
    ):
        if notice is UNREADABLE or options.selects(notice.code):
            part.findings += (notice.finding(problem, source.path, version) for problem in problems)
    part.skipped = source.template
    if part.skipped is None and (versions := _excluding(source, version, options)) is not None:
        part.skipped = f"it is for SGLang {versions}"
    if part.skipped is not None:
        return
    catalogue, refused = load_catalogue(version), 0
    for number in range(len(source.invocations if source.recipe is None else source.recipe.roles)):
        request, hardware = _request(source, number, catalogue)
        lookup = options.lookup.on(hardware)
        examined = check_request(request, lookup, options.rules)
        findings = examined.results.findings
        may_be_accepted = bool(part.engine.others and examined.results.errors)
        refused += may_be_accepted
        if may_be_accepted and refused <= MOST_COMPARED:
            from speclaunch.checks.lint.engine_findings import with_other_releases  # noqa: PLC0415

            def request_in(release: str, number: int = number) -> Request:
                return _request(source, number, load_catalogue(release))[0]

            findings = with_other_releases(
                findings, part.engine.others, request_in, lookup, options.rules
            )
        if options.asker is not None:
            from speclaunch.checks.lint.engine_findings import engine_findings  # noqa: PLC0415  for few

            with waiting_for(f"the validation of SGLang {version}"):
                opinion = options.asker.opinion(examined.plan, blamed=examined.results.blamed)
            if opinion is not None:
                if not opinion.is_lasting:
                    reads.mark_uncacheable()
                is_named = not part.engine.others
                more = engine_findings(
                    opinion, examined.plan, examined.results.findings, is_named=is_named
                )
                findings += more.findings
                part.skipped_rules += more.skipped
        if source.recipe is None:
            findings = tuple(_with_conditions(findings, source.invocations[number]))
        elif any(finding.place.path != source.path for finding in findings):
            from speclaunch.checks.lint.recipe_findings import at_the_choice  # noqa: PLC0415  recipes alone

            findings = tuple(at_the_choice(findings, source.path))
        part.plans.append(examined.plan)
        part.findings += findings
        part.skipped_rules += examined.results.skipped
        part.unknown += examined.plan.facts.unknown
    if refused > MOST_COMPARED:
        part.unknown.append(
            UnknownFact(
                f"the releases that accept {refused - MOST_COMPARED} more deployments",
                f"only {MOST_COMPARED} deployments of a file are compared with other releases",
                "set --engine VERSION",
            )
        )


def _request(source: LintedFile, number: int, catalogue: Catalogue) -> tuple[Request, str]:
    """Return the request of deployment `number`, and the hardware that it names."""
    if source.recipe is not None:
        recipe = source.recipe.roles[number]
        deployment = recipe.deployment
        rendered = render_args(deployment.args, deployment.engine.env, catalogue)
        return from_recipe(recipe, rendered, catalogue), deployment.hardware.name
    invocation = source.invocations[number]
    name = invocation.name or recipe_name(source.path)
    return from_invocation(invocation, name, catalogue), invocation.hardware or AUTO


def _with_conditions(findings: Iterable[Finding], invocation: Invocation) -> Iterator[Finding]:
    """Yield the findings of a command, with the conditions under which their arguments are set.

    An error becomes a warning if its arguments have different conditions: they may never be set
    together.
    """
    conditions = {
        word.place.position: word.condition
        for word in invocation.words
        if word.condition is not None
    }
    for finding in findings:
        places = (finding.place, *finding.others) if conditions else ()
        here = (conditions.get(place.position) for place in places)
        found = list(dict.fromkeys(value for value in here if value is not None))
        if not found:
            yield finding
            continue
        is_certain = len(found) == 1 or finding.severity is not Severity.ERROR
        severity = finding.severity if is_certain else Severity.WARNING
        yield replace(finding, why="; ".join((finding.why, *found)), severity=severity)


def _report(part: FilePart, ignores: Sequence[Ignore]) -> FileReport:
    findings = sorted(
        _with_roles_named(_merged(unsuppressed(part.findings, ignores)), part), key=in_order
    )
    checkpoints = {
        checkpoint.name: checkpoint for plan in part.plans for checkpoint in plan.facts.checkpoints
    }
    return FileReport(
        part.source.path,
        part.engine.version,
        tuple(findings),
        tuple(dict.fromkeys(part.skipped_rules)),
        tuple(
            KnownCheckpoint(checkpoint.name, checkpoint.origin, tuple(sorted(checkpoint.unread)))
            for checkpoint in checkpoints.values()
        ),
        tuple(dict.fromkeys(part.unknown)),
        len(part.plans),
        part.skipped,
        bool(part.source.problems),
        part.source.template is not None,
        part.engine.note,
    )


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Merge equal findings at one place, and an info advisory's findings in one file."""
    found: dict[Hashable, Finding] = {}
    for finding in findings:
        same_place = (finding.place, finding.code, finding.message)
        key = finding.code if finding.is_minor_bug else same_place
        before = found.get(key)
        if before is not None and before.fix == finding.fix:
            about = tuple(dict.fromkeys((*before.deployments, *finding.deployments)))
            others = tuple(dict.fromkeys((*before.others, *finding.others)))
            found[key] = replace(finding, place=before.place, deployments=about, others=others)
        else:
            found[key] = finding
    return found.values()


def _with_roles_named(findings: Iterable[Finding], part: FilePart) -> Iterator[Finding]:
    """Yield the findings; those about only some of a recipe's roles name these roles."""
    roles = () if part.source.recipe is None else part.source.recipe.parts
    names = {role.deployment.name: str(role.role) for role in roles}
    for finding in findings:
        about = [names[place.name] for place in finding.deployments if place.name in names]
        if not about or len(about) == len(names) or any(name in finding.message for name in about):
            yield finding
        else:
            why = ": ".join(filter(None, (f"of {', '.join(about)}", finding.why)))
            yield replace(finding, why=why)


def parts_of(source: LintedFile, options: Options) -> list[FilePart]:
    """Split a file into parts by the engine versions to check it against.

    These are the requested versions or, if there are none, those the file specifies. Commands in a
    container are checked for the release of their image, so one file can have several parts. Raises
    SpeclaunchError if the engine of a recipe cannot be read.
    """
    if options.versions:
        parts = [
            FilePart(source, EngineChoice(version, note=_overridden(source, version, options)))
            for version in options.versions
        ]
        if not (source.recipe or source.invocations):
            return parts[:1]
    elif source.recipe is not None:
        by_engine: dict[EngineChoice, list[Recipe]] = {}
        for role in source.recipe.roles:
            by_engine.setdefault(_of_pin(role, options), []).append(role)
        parts = [FilePart(_with_roles(source, some), choice) for choice, some in by_engine.items()]
    else:
        by_image: dict[EngineChoice, list[Invocation]] = {}
        for invocation in source.invocations:
            tagged = image_release(invocation.image)
            engine = _resolved(tagged) if tagged is not None else _unnamed(options)
            by_image.setdefault(engine, []).append(invocation)
        parts = [
            FilePart(replace(source, invocations=tuple(some)), choice)
            for choice, some in by_image.items()
        ] or [FilePart(source, _unnamed(options))]
    for part in parts[1:]:  # read problems are reported once, for any version
        part.source = replace(part.source, problems=(), remarks=(), misread=())
    return parts


def _for_version(source: LintedFile, version: str, options: Options) -> LintedFile:
    parts = () if source.recipe is None else source.recipe.parts
    roles = [role for role in parts if _is_for(role, version, options)]
    return _with_roles(source, roles) if roles else source


def _excluding(source: LintedFile, version: str, options: Options) -> str | None:
    """Return a recipe's required versions as text; None if `version` fits, or without a recipe."""
    if source.recipe is None:
        return None
    if any(_is_for(role, version, options) for role in source.recipe.roles):
        return None
    engine = source.recipe.deployment.engine
    pin = () if options.overrides_pins or engine.pinned is None else (engine.pinned,)
    return " and ".join(dict.fromkeys((*pin, *engine.needs)))


def _is_for(recipe: Recipe, version: str, options: Options) -> bool:
    engine = recipe.deployment.engine
    counts = engine.bounds if options.overrides_pins else engine.specifier
    return counts.contains(version) or _answers(engine.pinned, version)


def _answers(pinned: str | None, version: str) -> bool:
    """True if a recipe pinned to `pinned` is checked for `version`."""
    return pinned is not None and named(pinned).held == version


def _overridden(source: LintedFile, version: str, options: Options) -> str | None:
    """Return the note that a recipe's pin is overridden; None if it is not."""
    pinned = source.recipe.deployment.engine.pinned if source.recipe is not None else None
    if pinned is None or not options.overrides_pins or _answers(pinned, version):
        return None
    return None if _excluding(source, version, options) else overrides_pin(version, pinned)


def _with_roles(source: LintedFile, roles: Sequence[Recipe]) -> LintedFile:
    recipe = source.recipe
    if recipe is None or not recipe.parts:
        return source
    return replace(source, recipe=replace(recipe, parts=tuple(roles)))


def _unnamed(options: Options) -> EngineChoice:
    installed = reads.engine(options.installed())
    return EngineChoice(installed) if installed is not None else _newest(held_versions())


def _of_pin(recipe: Recipe, options: Options) -> EngineChoice:
    """Return the declared or pinned engine of a recipe, else the installed or newest that fits."""
    engine = recipe.deployment.engine
    if engine.catalogue is not None:
        near = recipe.path.parent
        return EngineChoice(declared(engine.catalogue, engine.python, engine.pinned, near))
    if engine.pinned is not None:
        return _resolved(named(engine.pinned))
    installed = reads.engine(options.installed())
    if installed is not None and engine.specifier.contains(installed):
        return EngineChoice(installed)
    return _newest(tuple(engine.specifier.filter(held_versions())) or held_versions()[-1:])


def _newest(fitting: tuple[str, ...]) -> EngineChoice:
    return EngineChoice(fitting[-1], fitting[:-1])


def _resolved(found: ResolvedVersion) -> EngineChoice:
    """Return `found` as an engine choice. A post-release that replaces its release has no note."""
    return EngineChoice(found.held, note=None if is_of_its_line(found) else found.note)
