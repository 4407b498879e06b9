"""Migration of the commands in a file to another engine version; no other text changes.

Each command is read for its original version and planned for the other version
(`planned_migration.py`). The file is edited (`rewrite.py`), and the result is read back
(`round_trip.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.edit.edits import Change, Edit, Insertion, apply
from speclaunch.checks.edit.planned_migration import PlannedMigration, plan
from speclaunch.checks.edit.rewrite import (
    Rewriting,
    conflicts,
    edited_variables,
    rewrite,
    touched_lines,
    with_variable,
)
from speclaunch.checks.edit.round_trip import (
    ExpectedCommand,
    migration_differences,
    require_no_differences,
    secrets_of,
    text_differences,
)
from speclaunch.core import InputError, Place, Problem, lazy
from speclaunch.deployments import (
    Invocation,
    Reading,
    comments_of,
    image_version,
    read_text,
    settled,
)
from speclaunch.engine import (
    EAGLE_HANDLER,
    FIRST_BY_DEFAULT,
    FIRST_ONLY,
    REPOSITORY,
    VARIABLE,
    Catalogue,
    ParsedArguments,
    canonical,
    dead_variable,
    held_versions,
    official_image,
    parse_argv,
    precedes,
)
from speclaunch.engine import load as load_catalogue

Parse = Callable[[Catalogue], ParsedArguments]
"""Function that parses one command with the catalogue of any version."""


class SourceVersion(Struct, frozen=True):
    """Version for which the original command was written, and the reason to assume it.

    `is_named`: --from or the image names it. `accepts_all`: it accepts the complete command.
    """

    version: str
    why: str
    is_named: bool
    accepts_all: bool


def origin(parse: Parse, to: str, source: str | None, image: str | None) -> SourceVersion:
    """Return a command's version: `source` if set, the image's if any, else one that accepts it.

    If several accept it, `to` is preferred (nothing changes then), then the newest. If none does,
    the newest of those that reject the fewest arguments is returned. `source`, or an image with a
    version other than `to`, is used even if that version rejects the command.
    """
    if source is not None:
        accepted = not refused(parse(load_catalogue(source)))
        return SourceVersion(source, "set by --from", True, accepted)
    if image is not None:
        accepted = not refused(parse(load_catalogue(image)))
        if accepted or image != to:  # an image of `to` may have been changed before the arguments
            return SourceVersion(image, "its image has this version", True, accepted)
    best: tuple[int, str] | None = None
    for version in dict.fromkeys((to, *reversed(held_versions()))):
        count = refused(parse(load_catalogue(version)))
        if not count:
            newest = "the newest version that accepts every argument"
            why = "this version accepts the command unchanged" if version == to else newest
            return SourceVersion(version, why, False, True)
        if best is None or count < best[0]:
            best = (count, version)
    if best is None:
        raise LookupError("no catalogue is available")
    why = "no version accepts every argument; this version rejects the fewest"
    return SourceVersion(best[1], why, False, False)


def refused(parsed: ParsedArguments) -> int:
    """Return the number of rejected tokens. A missing model does not count."""
    return sum(problem.index is not None for problem in parsed.problems)


_OFFICIAL = lazy(
    rf"(?P<registry>(?:(?:index\.)?docker\.io/)?){re.escape(REPOSITORY)}:"
    r"v\d+\.\d+\.\d+(?:\.post\d+)?(?P<variant>-cu\d{3}|-rocm\d{3}(?:-mi3[05]x)?)?"
)


class NewImage(Struct, frozen=True):
    """New name of an image, and a warning for the user, if any."""

    name: str
    warning: str | None = None


def is_outdated(image: str | None, to: str) -> bool:
    """True if the tag of an image names a release other than `to`."""
    found = image_version(image)
    return found is not None and found != to


def successor(image: str, to: str) -> NewImage | None:
    """Return the official image of `to` that replaces an official image; None for other images."""
    found = _OFFICIAL.fullmatch(image)
    if found is None:
        return None
    variant = found["variant"] or ""
    vendor = "amd" if variant.startswith("-rocm") else "nvidia"
    name = official_image(to, vendor=vendor, gpu="mi350" if variant.endswith("-mi35x") else "")
    if name is None:
        return None
    warning = None
    if variant.startswith("-cu") and not name.endswith(variant):
        other = f"{name} has a different CUDA release than {image} ({variant[1:]})"
        warning = f"{other}: check the driver"
    return NewImage(f"{found['registry']}{name}", warning)


def unknown_image(image: str, to: str) -> Problem:
    """Return the problem that an image has no known counterpart for the release `to`."""
    return Problem(
        f"{image} contains SGLang {image_version(image)}; no image of its kind with {to} is known",
        help=(
            f"set an image with SGLang {to} (official: {official_image(to)}); --force leaves "
            "the image unchanged"
        ),
    )


def image_places(text: str, shown: str, image: str) -> tuple[Place, ...]:
    """Return the places outside of comments where a file names an image."""
    is_comment = comments_of(text, shown)
    pattern = re.compile(rf"(?<![\w./@]){re.escape(image)}(?![\w.@-])")
    found = [match.start() for match in pattern.finditer(text)]
    return tuple(
        Place(shown, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at), len(image))
        for at in found
        if is_comment is None or not is_comment(at)
    )


_SPECULATES_IN_V2 = EAGLE_HANDLER | {"NEXTN"}


class MigrationStep(Struct, frozen=True):
    """Description of a change, or a note for the user, with its place."""

    place: Place
    text: str


class Carried(Struct, frozen=True):
    """Migrated file that a command names: its old (`before`) and new text."""

    path: Path
    before: str
    text: str


class Migration(Struct):
    """Result of a migration."""

    text: str = ""
    """New text of the file, or the old text if there are problems; empty for several files."""
    steps: list[MigrationStep] = []
    problems: list[Problem] = []
    """Problems that block the migration: a removed feature, unknown flag or rejected value."""
    origins: list[MigrationStep] = []
    """Version of each command, and why it is assumed; empty if the user set a version."""
    warnings: list[Problem] = []
    """Warnings about parts that do not reach the engine and are left unchanged. `lint` and `import`
    warn about them, too."""
    also: list[Carried] = []
    """Other files that the commands name, migrated with the commands."""
    versions: list[SourceVersion] = []
    """Releases for which the commands of the old text were read, in order."""
    hidden: tuple[str, ...] = ()
    """Secret values of the file."""


class _Job(Struct):
    """Command during its migration."""

    invocation: Invocation
    origin: SourceVersion
    planned: PlannedMigration
    rewritings: list[Rewriting]
    """Alternative edits of the command, best first."""
    variable: Edit | None = None
    image: str | None = None
    """New image, inserted by `image_edits`; None if the image is unchanged."""
    image_edits: list[Edit] = []

    @property
    def env(self) -> dict[str, str]:
        return {VARIABLE: "False"} if self.variable is not None else {}


def migrate_commands(
    text: str,
    reading: Reading,
    to: str,
    source: str | None = None,
    *,
    follow: Callable[[Invocation, PlannedMigration], Migration] | None = None,
    keep_images: bool = False,
) -> Migration:
    """Return the migration of a file's server commands from version `source` (if set) to `to`.

    `follow` migrates the files that a command names. Images become the official images of `to`.
    With `keep_images`, images without a known counterpart are unchanged. Raises RoundTripError if
    the result has unannounced changes.
    """
    migration = Migration(text, problems=[*reading.unread, *reading.misread])
    migration.warnings += reading.problems
    reading, refusals, strays = _settled(reading, to)
    migration.problems += refusals
    jobs = [_job(invocation, text, to, source, migration) for invocation in reading.invocations]
    migration.versions = [job.origin for job in jobs]
    for job in jobs:
        _carry_image(job, text, to, migration, keep=keep_images)
    if follow is not None:
        for job in jobs:
            found = follow(job.invocation, job.planned)
            migration.problems += found.problems
            migration.steps += [step for step in found.steps if step not in migration.steps]
            migration.also += [step for step in found.also if step not in migration.also]
    for job in jobs:
        _branches(job, migration)
    migration.problems += conflicts([job.rewritings[0] for job in jobs])
    migration.problems = list(dict.fromkeys(migration.problems))
    if not migration.problems:
        migration.text = _proven(text, reading, jobs, to, strays)
        if migration.text != text and jobs:  # branches with equal arguments may differ now
            again = _read(migration.text, jobs[0].invocation.place.path)
            for invocation, job in zip(again.invocations, jobs, strict=True):
                _branches(replace(job, invocation=invocation), migration)
            migration.text = text if migration.problems else migration.text
    return migration


def _job(
    invocation: Invocation, text: str, to: str, source: str | None, migration: Migration
) -> _Job:
    words = [word.text for word in invocation.words]
    opaque = frozenset(i for i, word in enumerate(invocation.words) if not word.evaluated)

    def parse(catalogue: Catalogue) -> ParsedArguments:
        return parse_argv(words, catalogue, opaque=opaque, with_values=False)

    start = origin(parse, to, source, image_version(invocation.image) if invocation.image else None)
    target = load_catalogue(to)
    if start.is_named and not start.accepts_all and not refused(parse(target)):
        refuses = f"SGLang {start.version} refuses this command"
        note = f"{refuses}, but {to} accepts it; the command is unchanged"
        migration.steps.append(MigrationStep(invocation.place, note))
        start = SourceVersion(to, note, True, True)
    elif not start.is_named and start.version != to:
        note = f"read as a command of SGLang {start.version}: {start.why}"
        migration.origins.append(MigrationStep(invocation.place, note))
    mixed = not start.is_named and not start.accepts_all
    planned = plan(words, opaque, load_catalogue(start.version), target, mixed=mixed)

    def place(index: int | None) -> Place:
        known = index is not None and 0 <= index < len(words)
        return invocation.words[index or 0].place if known else invocation.place

    migration.problems += [
        Problem(problem.message, place(problem.index), problem.help) for problem in planned.problems
    ]
    ways = [rewrite(invocation, planned, text, uses=uses) for uses in (True, False)]
    if planned.problems:
        ways = [Rewriting()]
    ways = [way for way in ways if not way.problems] or ways[:1]
    migration.problems += ways[0].problems
    migration.steps += [MigrationStep(*step) for step in ways[0].steps]
    migration.steps += [MigrationStep(place(index), note) for index, note in planned.notes]
    job = _Job(invocation, start, planned, ways)
    _spec_v2(job, target, migration)
    return job


def _branches(job: _Job, migration: Migration) -> None:
    """Report other branches of the script, whose arguments are unchanged."""
    word = next((word for word in job.invocation.words if word.has_alternatives), None)
    if word is None:
        return
    if any(way.edits for way in job.rewritings):
        message = (
            "the arguments differ between branches of the script: only one branch would change"
        )
        migration.problems.append(Problem(message, word.place, "change each branch by hand"))
    else:
        note = "other branches of the script, which were not read, may add other arguments"
        migration.steps.append(MigrationStep(word.place, note))


def _carry_image(job: _Job, text: str, to: str, migration: Migration, *, keep: bool) -> None:
    """Change a command's image to the official one of `to`, or report that the old one remains."""
    image = job.invocation.image
    if image is None or not is_outdated(image, to):
        return
    places = image_places(text, job.invocation.place.path, image)
    new = successor(image, to)
    if new is None or not places:
        problem = replace(unknown_image(image, to), place=next(iter(places), job.invocation.place))
        (migration.warnings if keep else migration.problems).append(problem)
        return
    job.image = new.name
    job.image_edits = [Edit(place.line, place.column, place.length, new.name) for place in places]
    for place in places:
        step = MigrationStep(place, f"{image} is now {new.name}")
        if step not in migration.steps:
            migration.steps.append(step)
            migration.warnings += [Problem(new.warning, place)] if new.warning else []


def _proven(
    text: str,
    reading: Reading,
    jobs: Sequence[_Job],
    to: str,
    strays: frozenset[str],
) -> str:
    """Return the new text, proven by reading it back, with comments if they are proven, too."""
    shown = jobs[0].invocation.place.path if jobs else ""
    expected = [
        ExpectedCommand(
            tuple(word for word, _ in job.planned.words), to, job.planned.after, job.env, job.image
        )
        for job in jobs
    ]
    found: list[str] = []
    made = text
    for changes in _ways(jobs):
        edits = [change for change in changes if isinstance(change, Edit)]
        inserted = [change.text for change in changes if isinstance(change, Insertion)]
        if not edits:
            return text
        try:
            made = apply(text, changes)
            again, _, _ = _settled(_read(made, shown), to, strays)
            complete = [
                replace(
                    command, env={**edited_variables(job.invocation, text, edits), **command.env}
                )
                for command, job in zip(expected, jobs, strict=True)
            ]
            found = list(migration_differences(reading, again, complete))
        except (ValueError, InputError) as error:
            found = [str(error)]
        found += text_differences(text, made, shown, touched_lines(text, edits), inserted)
        if not found:
            return made
    hidden = secrets_of(reading.invocations, to)
    require_no_differences("migrate", found, text, made, hidden)
    return text


def _ways(jobs: Sequence[_Job]) -> Iterator[list[Change]]:
    """Yield sets of changes, best first: with comments, then without."""
    variables = [job.variable for job in jobs if job.variable is not None]
    variables += [edit for job in jobs for edit in job.image_edits]
    for number in range(max((len(job.rewritings) for job in jobs), default=0)):
        chosen = [job.rewritings[min(number, len(job.rewritings) - 1)] for job in jobs]
        edits: list[Change] = [edit for way in chosen for edit in way.edits]
        edits += variables
        above = [insertion for way in chosen for insertion in way.above]
        yield list(dict.fromkeys([*edits, *above]))
        if above:
            yield list(dict.fromkeys(edits))


def _settled(
    reading: Reading, to: str, strays: frozenset[str] = frozenset()
) -> tuple[Reading, list[Problem], frozenset[str]]:
    """Return the commands as the parser receives them, the problems of `to`, and stray tokens.

    `to` reports these problems before parsing. Stray tokens may expand to any number of arguments.
    """
    catalogue = load_catalogue(to)
    found = [settled(invocation, catalogue, strays) for invocation in reading.invocations]
    problems = [problem for item in found for problem in item.refused]
    commands = tuple(item.invocation for item in found)
    more = frozenset().union(*(item.strays for item in found))
    return replace(reading, invocations=commands), problems, more


def _read(text: str, shown: str) -> Reading:
    return read_text(text, shown, Path(shown).suffix or None)


def _spec_v2(job: _Job, catalogue: Catalogue, migration: Migration) -> None:
    """Report that SpecV2 is on, or add a variable that keeps it off.

    SpecV2 is the default from 0.5.11, and always on from 0.5.14 (speculative_hook.py).
    """
    invocation = job.invocation
    for name, word in invocation.env.items():
        dead = dead_variable(name, catalogue.version)
        if dead is not None:
            note = f"{name} has no effect: {dead.afterwards}"
            migration.steps.append(MigrationStep(word.place, note))
    if VARIABLE in invocation.env:
        return
    arguments = (migrated.item for migrated in job.planned.arguments)
    algorithms = (a.stored for a in arguments if canonical(a.dest) == "speculative_algorithm")
    if str(next(algorithms, None)) not in _SPECULATES_IN_V2:
        return
    was_off = precedes(job.origin.version, FIRST_BY_DEFAULT)
    if not was_off or precedes(catalogue.version, FIRST_BY_DEFAULT):
        return
    if not precedes(catalogue.version, FIRST_ONLY):
        note = f"SpecV2 (the overlap scheduler) is always on from {FIRST_ONLY}"
        migration.steps.append(MigrationStep(invocation.place, note))
        return
    reason = f"SpecV2 is on by default from {FIRST_BY_DEFAULT}"
    if not job.origin.is_named:
        note = f"{reason}; the script does not disable it"
        migration.steps.append(MigrationStep(invocation.place, note))
        return
    job.variable = with_variable(invocation, VARIABLE, "False", migration.text)
    done = "this keeps SpecV2 off" if job.variable else "set this to keep SpecV2 off"
    migration.steps.append(MigrationStep(invocation.place, f"{VARIABLE}=False: {reason}; {done}"))
