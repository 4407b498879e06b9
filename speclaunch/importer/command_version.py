"""The release that a command is read for, and the command as that release reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from speclaunch.engine import forks
from speclaunch.engine.argument import Argument, ArgumentKind
from speclaunch.engine.argv import ParsedArguments, parse_argv
from speclaunch.engine.catalogue import Catalogue, held_versions, resolve_version
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.renames import other_names
from speclaunch.engine.versions import ResolvedVersion, is_of_its_line, is_version
from speclaunch.errors import Problem
from speclaunch.importer.effective_words import EffectiveWords, effective
from speclaunch.importer.images import image_release
from speclaunch.importer.interface import Invocation, Word
from speclaunch.record import record


@record
class VersionedCommand:
    """A command, the release that reads it, and what that release makes of its words."""

    command: Invocation
    """The command, its ambiguous flags in full."""
    catalogue: Catalogue
    pin: str
    """The release to write into a recipe."""
    words: EffectiveWords
    parsed: ParsedArguments
    note: str | None = None
    """Why it is read for another release than the stated one, or than the newest."""
    in_full: tuple[Problem, ...] = ()
    """The flags that were written out."""

    @property
    def wrong(self) -> int:
        """How many words the release refuses, and a model that is missing."""
        return len(self.words.refused) + len(self.parsed.problems)


def versioned(
    invocation: Invocation, version: str | None = None, default: str | None = None
) -> VersionedCommand:
    """Read a command for `version`, else the release of its image, else `default` (the newest).

    A stated release may refuse the command. If none is stated, flags that the release cannot tell
    apart are written out, and an older release is used only if the command needs one.
    """
    stated = resolve_version(version) if version else image_release(invocation.image)
    if stated is not None:
        found = _read(invocation, load_catalogue(stated.held))
        note = None if is_of_its_line(stated) else stated.note
        return replace(found, pin=_pin(stated), note=note)
    first = (default or held_versions()[-1]).partition(forks.MARK)[0]
    wanted = best = _in_full(_read(invocation, load_catalogue(first)))
    for held in reversed(held_versions()):
        if not best.wrong:
            break
        found = _in_full(_read(invocation, load_catalogue(held)))
        best = found if found.wrong < best.wrong else best
    return best if best is wanted else replace(best, note=_why_older(wanted, best))


def _pin(stated: ResolvedVersion) -> str:
    """The release to write down: the requested one, if another one answers for it."""
    if stated.exact or not is_version(stated.asked):
        return stated.held
    return stated.asked.strip().removeprefix("v")


def _read(invocation: Invocation, catalogue: Catalogue) -> VersionedCommand:
    found = effective(invocation, catalogue)
    opaque = {index for index, word in enumerate(found.words) if not word.evaluated}
    parsed = parse_argv([word.text for word in found.words], catalogue, opaque=opaque)
    return VersionedCommand(invocation, catalogue, catalogue.version, found, parsed)


def _in_full(read: VersionedCommand) -> VersionedCommand:
    """The command with the flags in full that its release refuses and another one understood."""
    flags = dict(_meant(read))
    if not flags:
        return read
    own = {id(word) for word in read.command.words}
    texts = {id(word): text for word, (text, _) in flags.items() if id(word) in own}
    words = tuple(
        replace(word, text=texts[id(word)]) if id(word) in texts else word
        for word in read.command.words
    )
    again = _read(replace(read.command, words=words), read.catalogue)
    if again.wrong >= read.wrong:
        return read
    told = tuple(problem for word, (_, problem) in flags.items() if id(word) in texts)
    return replace(again, in_full=told)


def _meant(read: VersionedCommand) -> Iterator[tuple[Word, tuple[str, Problem]]]:
    """Each flag that the release refuses, in full, and what to report of it."""
    for problem in read.parsed.problems:
        word = read.words.words[problem.index] if problem.index is not None else None
        if word is None or not word.evaluated or not word.text.startswith("--"):
            continue
        written, equals, value = word.text.partition("=")
        for held in reversed(held_versions()):
            older = load_catalogue(held)
            argument = older.resolve_flag(written)
            if not isinstance(argument, Argument):
                continue
            flag = _flag_of(argument, read.catalogue)
            if flag is not None:
                message = (
                    f"SGLang {read.catalogue.version} refuses {written}: the recipe sets {flag}, "
                    f"as {held} reads it"
                )
                told = Problem(message, word.place, f"write {flag} in the script, too")
                yield word, (f"{flag}{equals}{value}", told)
            break


def _flag_of(argument: Argument, catalogue: Catalogue) -> str | None:
    """The flag of the same argument in another release; None if it has none that it accepts."""
    for name in (argument.name, *other_names(argument.name)):
        found = catalogue.by_name(name)
        if found is None or found.deprecated or found.kind is ArgumentKind.REFUSED:
            continue
        if found.kind.takes_value == argument.kind.takes_value:
            return found.flag
    return None


def _why_older(first: VersionedCommand, found: VersionedCommand) -> str:
    """Why a command is not read for the release that comes first."""
    refused = [one.message for one in first.words.refused]
    refused += [one.message for one in first.parsed.problems]
    verb = "accepts" if not found.wrong else "refuses the least of"
    return (
        f"no SGLang version is set, and {first.catalogue.version} refuses the command "
        f"({refused[0]}); {found.catalogue.version} is the newest that {verb} it"
    )
