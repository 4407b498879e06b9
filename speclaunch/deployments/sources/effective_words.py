"""Tokens that reach the server's parser, from the command and from its ``--config`` file.

The engine opens the ``--config`` file relative to its working directory, which a script does not
state. The script's directory is tried, then the current directory. If the script runs `cd sub`
first, `sub` in each of them is tried. Files elsewhere on the machine are never read, because a
finding must not quote them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Place, Problem, lazy, reads
from speclaunch.deployments.sources.interface import (
    ConfigFile,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.source_text import MAX_BYTES, is_ellipsis
from speclaunch.engine import (
    CONFIG,
    CONFIG_SINCE,
    CONFIG_SUFFIXES,
    Argument,
    Catalogue,
    dispatch,
    history,
    name_of,
    since,
)
from speclaunch.engine import load as load_catalogue

_NAMED = lazy(r"--?[A-Za-z][\w.-]*=")
"""Pattern of the start of a token whose option is known although its value is not."""
_MANY = lazy(r"[@*]|(?:ARG|OPT|FLAG|PARAM|EXTRA)", re.IGNORECASE)
"""Pattern of the names of variables that may contain any number of arguments."""

NO_FILE = "no such file here"
_COMMANDS = (InvocationKind.SERVE, InvocationKind.LAUNCH_SERVER, InvocationKind.DYNAMO)
"""Commands that read `--config` as SGLang does."""


class EffectiveWords(Struct):
    """Tokens that one version's parser gets.

    `refused` contains the problems that the program reports before its parser runs. `unseen` is the
    reason why further arguments may exist.
    """

    words: tuple[Word, ...]
    refused: list[Problem] = []
    remarks: list[Problem] = []
    unseen: str | None = None
    elided: list[Word] = []
    """Tokens that may expand to any number of arguments, including none: `"$@"`, `...`."""
    config: Word | None = None
    """Name of the `--config` file if it was not read, else None."""
    model: Word | None = None
    """Model path without a flag, which `sglang serve` accepts, or None."""


def effective(invocation: Invocation, catalogue: Catalogue) -> EffectiveWords:
    """Return the tokens that the parser of `catalogue`'s version gets from a command."""
    found = EffectiveWords(invocation.words, list(invocation.refused))
    if invocation.kind is InvocationKind.CONFIG and invocation.config is not None:
        found.words, found.refused = (), []
        _merge(found, invocation.config, invocation.place, catalogue)
    if invocation.kind is InvocationKind.SERVE:
        _serve(found, invocation, catalogue)
    if invocation.kind is InvocationKind.ENGINE:
        found.words = _of_fields(found, catalogue)
    found.words = _without_strays(found, catalogue)
    if invocation.kind in _COMMANDS:
        _config(found, invocation, catalogue)
    found.words = (*found.words, *invocation.added)
    return found


class SettledCommand(Struct, frozen=True):
    """Command with only the tokens that reach the parser from the command itself.

    `refused` contains problems that stop the program earlier. `strays` contains dropped unknown
    tokens that are not values of a flag.
    """

    invocation: Invocation
    refused: tuple[Problem, ...] = ()
    strays: frozenset[str] = frozenset()


def settled(
    invocation: Invocation, catalogue: Catalogue, strays: Collection[str] = ()
) -> SettledCommand:
    """Return a command without the tokens that the program consumes before parsing.

    Tokens that may expand to any number of arguments are also removed. All removed tokens are added
    to its `dropped`. Files that the command names are not read. `strays`: dropped tokens of an
    earlier form of the command. A list option in front of such a token does not consume it.
    """
    found = EffectiveWords(invocation.words)
    if invocation.kind is InvocationKind.SERVE:
        _serve(found, invocation, catalogue)
    original_ids = {id(word) for word in invocation.words}
    remaining = _without_strays(found, catalogue, strays)
    words = tuple(word for word in remaining if id(word) in original_ids)
    remaining_ids = {id(word) for word in words}
    removed = [word for word in invocation.words if id(word) not in remaining_ids]
    if found.model is not None:
        words = tuple(word for word in words if word is not found.model)
        removed.append(found.model)
    why = "it does not reach the server's parser unchanged"
    rest = (Dropped(word.text, word.place, why) for word in removed)
    return SettledCommand(
        replace(invocation, words=words, dropped=(*invocation.dropped, *rest)),
        tuple(found.refused),
        frozenset(word.text for word in found.elided if not word.evaluated),
    )


def _of_fields(found: EffectiveWords, catalogue: Catalogue) -> tuple[Word, ...]:
    """Return `found`'s fields as flags, without switches of unknown value."""
    remaining: list[Word] = []
    words = found.words
    for index, word in enumerate(words):
        before = remaining[-1] if remaining else None
        argument = catalogue.by_name(word.text) if word.text.startswith("--") else None
        if argument is not None and word.evaluated:
            after = words[index + 1] if index + 1 < len(words) else None
            if not argument.kind.takes_value and after is not None and not after.evaluated:
                found.elided.append(word)
            else:
                remaining.append(replace(word, text=argument.flag))
        elif not word.evaluated and (before is None or words[index - 1] in found.elided):
            found.elided.append(word)
        elif word.text.startswith("--") and word.evaluated:  # a field has no abbreviations
            remaining.append(replace(word, text=f"--{name_of(word.text)}"))
        else:
            remaining.append(word)
    return tuple(remaining)


def _serve(found: EffectiveWords, invocation: Invocation, catalogue: Catalogue) -> None:
    words = found.words
    several = [not w.evaluated and _MANY.search(w.text) is not None for w in words]
    several = [s and not w.placeholder for s, w in zip(several, words, strict=True)]
    ellipses = any(word.placeholder and is_ellipsis(word.text) for word in words)
    first = several.index(False) if False in several else len(words)
    read = dispatch(
        [word.text for word in words[first:]], catalogue, certain=not ellipses and not any(several)
    )
    for index, message in read.refused:
        place = invocation.place if index is None else words[first + index].place
        found.refused.append(Problem(message, place))
    found.elided += words[:first]
    passed_on: list[Word] = []
    for index, word in enumerate(words[first:]):
        if index == read.model:
            found.model = word
            passed_on.append(replace(word, text="--model-path", evaluated=True, placeholder=False))
        if index not in read.own:
            passed_on.append(word)
    found.words = tuple(passed_on)


def _config(found: EffectiveWords, invocation: Invocation, catalogue: Catalogue) -> None:
    """Merge `--config FILE` into `found`: its arguments come first, so the command's win."""
    at = [i for i, word in enumerate(found.words) if word.evaluated and word.text == CONFIG]
    if not at or not since(catalogue, CONFIG_SINCE):
        return
    words, index = found.words, at[0]
    if len(at) > 1 or index + 1 >= len(words):
        many = "Multiple config files specified! Only one allowed."
        message = many if len(at) > 1 else "No config file specified after --config flag!"
        found.refused.append(Problem(f"argument --config: {message}", words[at[-1]].place))
        found.words = words[:-1] if len(at) == 1 else words  # the parser never gets it
        return
    path = words[index + 1]
    found.words = (*words[:index], *words[index + 2 :])
    if not path.evaluated:
        found.config = path
        found.unseen = f"the --config file `{path.text}` is unknown"
    elif PurePath(path.text).suffix.lower() not in CONFIG_SUFFIXES:
        suffix = PurePath(path.text).suffix
        message = f"argument --config: Config file must be YAML format, got: {suffix}"
        found.refused.append(Problem(message, path.place, "name a file that ends in .yaml"))
        found.unseen = "the engine does not read the --config file"
    elif invocation.config is None or invocation.config.text is None:
        why = invocation.config.why if invocation.config is not None else "it is not read here"
        found.config = path
        found.unseen = f"--config {path.text}: {why}"
    else:
        _merge(found, invocation.config, path.place, catalogue)


def _merge(found: EffectiveWords, config: ConfigFile, place: Place, catalogue: Catalogue) -> None:
    try:
        from speclaunch.deployments.sources.sglang_yaml import read_sglang_yaml  # noqa: PLC0415  YAML

        reading = read_sglang_yaml(config.text or "", config.shown, catalogue.version)
    except InputError as error:
        found.unseen = f"{config.shown} cannot be read"
        found.refused += [
            Problem(f"argument --config: {problem.message}", problem.place or place, problem.help)
            for problem in error.problems
        ]
        return
    found.remarks += reading.problems
    for invocation in reading.invocations:
        found.words = (*invocation.words, *found.words)
        found.refused += invocation.refused


def _without_strays(
    found: EffectiveWords, catalogue: Catalogue, strays: Collection[str] = ()
) -> tuple[Word, ...]:
    """Return `found`'s tokens except unknown ones (`"$@"`, `--$KEY=1`) that are not a flag's value.

    `strays`: see `settled`.
    """
    remaining: list[Word] = []
    room = 0
    is_open = False  # True if the previous token may be a flag that accepts a value
    for word in found.words:
        if is_open and room == 0 and not word.text.startswith("-"):
            found.elided.append(word)
            is_open = not word.evaluated
            continue
        is_open = False
        if word.text.startswith("-") and (word.evaluated or _NAMED.match(word.text)):
            room = _room(word, catalogue)
        elif not word.evaluated and (room == 0 or (room > 1 and word.text in strays)):
            found.elided.append(word)
            is_open = not word.placeholder
            continue
        else:
            room = max(room - 1, 0)
            if not word.evaluated and word.text.startswith("*"):
                found.elided.append(word)  # further words may follow the value
                is_open = True
        remaining.append(word)
    return tuple(remaining)


def _room(flag: Word, catalogue: Catalogue) -> int:
    """Return the maximum number of tokens after a flag that can be its values.

    For a flag that this version lacks, the last version that has it decides.
    """
    if "=" in flag.text:
        return 0
    found = catalogue.resolve_flag(flag.text)
    argument = found if isinstance(found, Argument) else None
    if argument is None and (past := history(name_of(flag.text))) is not None:
        argument = load_catalogue(past.last).by_name(flag.text)
    if argument is not None and argument.nargs in ("+", "*"):
        return sys.maxsize
    takes = argument is None or argument.kind.takes_value
    return 1 if takes else 0


def followed(reading: Reading, file: Path | None) -> Reading:
    """Return `reading` with the ``--config`` files of its commands loaded.

    `file` is the file with the commands; None for standard input or a command line.
    """
    if not any(word.text == CONFIG for found in reading.invocations for word in found.words):
        return reading
    folders = [file.parent] if file is not None else []
    places = [*folders, Path()]
    return replace(
        reading, invocations=tuple(_with_config(found, places) for found in reading.invocations)
    )


def config_file(name: str) -> ConfigFile:
    """Return the ``--config NAME`` file of an engine that starts in the working directory."""
    return read_below(name, [Path()])


def config_path(invocation: Invocation) -> str | None:
    """Return the value of ``--config`` in a command; None if it is unset or unknown."""
    words = [word for word in invocation.words if word.evaluated]
    at = next((i for i, word in enumerate(words) if word.text == CONFIG), len(words))
    return words[at + 1].text if at + 1 < len(words) else None


def _with_config(invocation: Invocation, places: Sequence[Path]) -> Invocation:
    if invocation.kind in (InvocationKind.CONFIG, InvocationKind.SLIME):
        return invocation
    if invocation.config is not None:  # found next to the command
        return invocation
    name = config_path(invocation)
    if name is None or not name.lower().endswith(CONFIG_SUFFIXES):
        return invocation
    if invocation.image is not None:
        found = ConfigFile(name, why="it is in the container")
    else:
        found = read_below(name, places, invocation.directory)
    return replace(invocation, config=found)


def read_below(
    name: str,
    places: Sequence[Path],
    directory: str | None = None,
    *,
    roots: Sequence[Path] = (),
    limit: int = MAX_BYTES,
) -> ConfigFile:
    """Return the file `name` in `directory` of one of `places`, if it is below one or a root."""
    outside = False
    below = [place / (directory or "") for place in places]
    if directory is not None and Path(directory).is_absolute():
        below += places  # an absolute path of the machine or container that the script is for
    for place in dict.fromkeys(below):
        file = place / name
        try:
            if not reads.is_file(file):
                continue
            real = reads.resolve(file)
            if not any(real.is_relative_to(reads.resolve(place)) for place in (*places, *roots)):
                outside = True
                continue
            if reads.size(file) > limit:
                return ConfigFile(name, why=f"it is larger than {limit >> 10} KiB")
            return ConfigFile(str(file), reads.read_bytes(file).decode("utf-8-sig"))
        except UnicodeDecodeError:
            return ConfigFile(name, why="it is not UTF-8 text")
        except (OSError, ValueError) as error:
            return ConfigFile(name, why=f"it cannot be read ({getattr(error, 'strerror', error)})")
    if outside:
        return ConfigFile(name, why="it is outside the checked directories")
    return ConfigFile(name, why=NO_FILE)


def allowed_roots(directory: Path) -> Iterator[Path]:
    """Yield the directories below which the files that one in `directory` names may be read.

    These are the working directory and the repository. Without a repository, the second is two
    levels above `directory`, because related files are in siblings of it.
    """
    here = reads.resolve(Path())
    real = reads.resolve(directory)
    if real.is_relative_to(here):
        yield here
    for parent in (real, *real.parents):
        if reads.exists(parent / ".git"):
            yield parent
            return
    yield real.parents[min(1, len(real.parents) - 1)] if real.parents else real
