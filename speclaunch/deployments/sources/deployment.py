"""Convert a server command found in a file to a recipe for its release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from speclaunch.core import (
    COMMAND_LINE,
    Problem,
    holds_secret,
    is_literal_secret,
    is_secret_variable,
    masked,
)
from speclaunch.deployments.recipe.sections import ENV_NAME
from speclaunch.deployments.sources.effective_words import EffectiveWords, effective
from speclaunch.deployments.sources.interface import Dropped, Invocation, InvocationKind, Word
from speclaunch.deployments.sources.recipe_text import (
    OPEN,
    Interpolation,
    RecipeLine,
    recipe_text,
    value_of,
)
from speclaunch.deployments.sources.slime import GPUS, MODEL, OWN, prefixed
from speclaunch.deployments.sources.wrappers import image_release
from speclaunch.engine import (
    Argument,
    ArgumentKind,
    Catalogue,
    ParsedArgument,
    ParsedArguments,
    ResolvedVersion,
    args_of,
    canonical,
    forks,
    held_versions,
    is_of_its_line,
    is_secret_argument,
    is_version,
    other_names,
    parse_argv,
    resolve_version,
)
from speclaunch.engine import load as load_catalogue


class VersionedCommand(Struct, frozen=True):
    """Command, parsed by one release."""

    command: Invocation
    """Command with ambiguous flags written in full."""
    catalogue: Catalogue
    pin: str
    """Release to write into a recipe."""
    words: EffectiveWords
    parsed: ParsedArguments
    note: str | None = None
    """Reason for using a release other than the stated or newest release; else None."""
    in_full: tuple[Problem, ...] = ()
    """Problems about the flags that were written in full."""

    @property
    def wrong(self) -> int:
        """Number of tokens that the release rejects, plus 1 if the model is missing."""
        return len(self.words.refused) + len(self.parsed.problems)


def versioned(
    invocation: Invocation, version: str | None = None, default: str | None = None
) -> VersionedCommand:
    """Parse a command with `version`, else its image's release, else `default` (the newest).

    An explicit release may reject the command. Without an explicit release, ambiguous flags are
    written in full, and an older release is used only if the command needs it.
    """
    stated = resolve_version(version) if version else image_release(invocation.image)
    if stated is not None:
        found = _read(invocation, load_catalogue(stated.held))
        note = None if is_of_its_line(stated) else stated.note
        return replace(found, pin=_pin(stated), note=note)
    first = (default or held_versions()[-1]).partition(forks.MARK)[0]
    preferred = best = _in_full(_read(invocation, load_catalogue(first)))
    for held in reversed(held_versions()):
        if not best.wrong:
            break
        found = _in_full(_read(invocation, load_catalogue(held)))
        best = found if found.wrong < best.wrong else best
    return best if best is preferred else replace(best, note=_why_older(preferred, best))


def _pin(stated: ResolvedVersion) -> str:
    """Return the release to write: the stated release, even if a different release replaces it."""
    if stated.exact or not is_version(stated.requested):
        return stated.held
    return stated.requested.strip().removeprefix("v")


def _read(invocation: Invocation, catalogue: Catalogue) -> VersionedCommand:
    found = effective(invocation, catalogue)
    opaque = {index for index, word in enumerate(found.words) if not word.evaluated}
    parsed = parse_argv([word.text for word in found.words], catalogue, opaque=opaque)
    return VersionedCommand(invocation, catalogue, catalogue.version, found, parsed)


def _in_full(read: VersionedCommand) -> VersionedCommand:
    """Return the command with full flags in place of flags that only another release accepts."""
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
    problems = tuple(problem for word, (_, problem) in flags.items() if id(word) in texts)
    return replace(again, in_full=problems)


def _meant(read: VersionedCommand) -> Iterator[tuple[Word, tuple[str, Problem]]]:
    """Yield each flag that the release rejects, with the accepted form and the problem."""
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
                    f"which {written} means in {held}"
                )
                refusal = Problem(message, word.place, f"use {flag} in the script as well")
                yield word, (f"{flag}{equals}{value}", refusal)
            break


def _flag_of(argument: Argument, catalogue: Catalogue) -> str | None:
    """Return the flag of `argument` in `catalogue`; None if no current flag there matches it."""
    for name in (argument.name, *other_names(argument.name)):
        found = catalogue.by_name(name)
        if found is None or found.deprecated or found.kind is ArgumentKind.REFUSED:
            continue
        if found.kind.takes_value == argument.kind.takes_value:
            return found.flag
    return None


def _why_older(first: VersionedCommand, found: VersionedCommand) -> str:
    refused = [refusal.message for refusal in first.words.refused]
    refused += [problem.message for problem in first.parsed.problems]
    verb = "accepts it" if not found.wrong else "refuses the fewest arguments"
    return (
        f"no SGLang version is set, but {first.catalogue.version} refuses the command "
        f"({refused[0]}); {found.catalogue.version} is the newest that {verb}"
    )


class Literals(Struct):
    """Environment variables that replace secret arguments and variables, by name."""

    args: dict[str, str] = {}
    env: dict[str, str] = {}
    problems: list[Problem] = []

    def argument(self, name: str, line: RecipeLine, words: Sequence[Word]) -> RecipeLine:
        """Return an argument's line without secrets; `words` contains its flag and its values."""
        if not (is_secret_argument(canonical(name)) or holds_secret(line.value)):
            return line
        variable = _variable(name.upper(), line, words[1:] or words)
        if variable is None:
            return line
        self.args[canonical(name)] = variable
        return self._taken(name, variable, line, words[-1])

    def variables(
        self, env: Mapping[str, RecipeLine], words: Mapping[str, Word]
    ) -> dict[str, RecipeLine]:
        found = dict(env)
        for name, line in env.items():
            if not (is_secret_variable(name) or holds_secret(line.value)):
                continue
            variable = _variable(name, line, [words[name]])
            if variable is not None:
                self.env[name] = variable
                found[name] = self._taken(name, variable, line, words[name])
        return found

    def _taken(self, name: str, variable: str, line: RecipeLine, word: Word) -> RecipeLine:
        place = word.place
        if place.path == COMMAND_LINE:  # the place's text may be the secret
            place = replace(place, text=name)
        self.problems.append(
            Problem(
                f"the value of {name} is written in the file; the recipe reads it from ${variable}",
                replace(place, hidden=True),
                f"export {variable} where the recipe is launched, and rotate the secret: it has "
                "been exposed",
            )
        )
        return RecipeLine(Interpolation(f"${{oc.env:{variable}}}"), line.comment)


def _variable(name: str, line: RecipeLine, words: Sequence[Word]) -> str | None:
    """Return the variable that replaces a literal secret; None if there is no secret."""
    for word in words:
        for default in word.defaults:
            if is_literal_secret(word.text[default.start : default.end]):
                return default.name
    if isinstance(line.value, str) and not isinstance(line.value, Interpolation):
        return name if is_literal_secret(line.value) or holds_secret(line.value) else None
    return None


_OF_SLIME = "an option of slime"
_FEW = 2
"""Maximum number of omitted parts per reason that are listed on separate lines."""
_COMMANDS = (InvocationKind.LAUNCH_SERVER, InvocationKind.SERVE, InvocationKind.DYNAMO)


class Imported(Struct, frozen=True):
    """Deployment read from a command, ready to be written as a recipe."""

    name: str
    version: str
    """Release that the recipe sets."""
    args: Mapping[str, RecipeLine]
    env: Mapping[str, RecipeLine]
    remarks: tuple[str, ...]
    """Parts that were omitted or could not be evaluated, with their places."""
    problems: tuple[Problem, ...] = ()
    """Arguments that the requested version, or every version, rejects."""
    assumed: tuple[Problem, ...] = ()
    """Assumptions that the recipe makes.

    Conditional settings of the script are unconditional in the recipe. Secrets in the script become
    environment variables.
    """
    secrets: Literals = field(default_factory=Literals)
    model: str | None = None
    """Model path or hub name, for the description; None if unknown."""
    command: Invocation | None = None
    """Command that was read, with its flags in full."""
    note: str | None = None

    def recipe(self, source: str) -> str:
        header = [f"Imported from {source}, read as a command of SGLang {self.version}."]
        if self.remarks:
            header += ["", *self.remarks]
        algorithm = self.args.get("speculative_algorithm")
        speculation = str(algorithm.value) if algorithm else "No speculation"
        description = f"{speculation} on {self.model or 'an unset model'}"
        if "config" in self.args:  # the file may set speculation and model
            description = f"Settings from {self.args['config'].value} and its command"
        return recipe_text(
            header=header,
            description=description,
            args=self.args,
            env=self.env,
            version=self.version,
        )


def to_deployment(
    source: Invocation, name: str, version: str | None = None, default: str | None = None
) -> Imported:
    """Convert a command to a recipe, parsed with `version`, its image's release, or `default`.

    Without `version` and image, a release older than `default` (the newest) is used if it accepts
    more arguments.
    """
    read = versioned(source, version, default)
    invocation, found, parsed = read.command, read.words, read.parsed
    words = found.words
    problems = [
        *found.refused,
        *(
            Problem(problem.message, words[problem.index].place, problem.help)
            for problem in parsed.problems
            if problem.index is not None  # a missing model is left open in the recipe
        ),
    ]
    lines = {argument.name: _line(argument, words) for argument in parsed.parsed}
    args = {}
    for name_, value in args_of(parsed).items():
        its = _words_of(name_, parsed, words)
        line = lines[name_] or RecipeLine(value, next((w.why for w in its if w.why), None))
        condition = next((word.condition for word in its if word.condition), None)
        args[name_] = _commented(line, condition)
    remarks = _remarks(invocation)
    remarks += [
        f"{word.place}: left out `{masked(word.text)}`: {word.why}" for word in found.elided
    ]
    remarks += _config_file(parsed, found, invocation, args)
    if invocation.kind is InvocationKind.SLIME:
        args = {name: line for name, line in args.items() if canonical(name) not in OWN}
        remarks += _ignored_by_slime(parsed, words)
        args = _from_slime(invocation, args)
    secrets = Literals()
    args = {n: secrets.argument(n, line, _words_of(n, parsed, words)) for n, line in args.items()}
    if found.unseen is None:
        args.setdefault("model_path", RecipeLine(OPEN, "not in the command: set it"))
    env = {
        variable: _commented(value_of(word), word.condition)
        for variable, word in invocation.env.items()
        if ENV_NAME.match(variable)
    }
    remarks += [
        f"{word.place}: left out `{variable}`: not a valid environment variable name"
        for variable, word in invocation.env.items()
        if not ENV_NAME.match(variable)
    ]
    env = secrets.variables(env, invocation.env)
    remarks += [f"{masked(str(problem.place))}: {problem.message}" for problem in secrets.problems]
    model = args.get("model_path")
    named = [
        words[index].text
        for argument in parsed.parsed
        for index in argument.value_indices
        if argument.name == "model_path" and words[index].evaluated
    ]
    plain = model is not None and not isinstance(model.value, Interpolation) and model.value != OPEN
    return Imported(
        name,
        read.pin,
        args,
        env,
        tuple(remarks),
        tuple(problems),
        (
            *(
                Problem(f"left out {masked(dropped.text)}: {dropped.why}", dropped.place)
                for dropped in invocation.dropped
                if dropped.is_lost
            ),
            *read.in_full,
            *_conditional(invocation, parsed, words, args),
            *secrets.problems,
        ),
        secrets,
        str(model.value) if model is not None and plain else next(iter(named), None),
        invocation,
        read.note,
    )


def _line(argument: ParsedArgument, words: Sequence[Word]) -> RecipeLine | None:
    """Return the recipe line of an argument with an unknown value; None for other arguments."""
    flag = words[argument.index]
    if not argument.value_indices:
        start = len(flag.text.partition("=")[0]) + 1
        known = flag.evaluated and not any(default.start >= start for default in flag.defaults)
        return None if known or start > len(flag.text) else value_of(flag, start)
    values = [words[index] for index in argument.value_indices]
    if len(values) == 1 and argument.argument.kind is not ArgumentKind.LIST:
        (value,) = values
        return value_of(value) if value.defaults or not value.evaluated else None
    if all(value.evaluated for value in values):
        return None
    lines = [value_of(value) for value in values]
    left = next((line for line in lines if line.value == OPEN), None)
    return left or RecipeLine([line.value for line in lines])


def _words_of(name: str, parsed: ParsedArguments, words: Sequence[Word]) -> list[Word]:
    return [
        words[index]
        for argument in parsed.parsed
        if argument.name == name
        for index in (argument.index, *argument.value_indices)
    ]


def _commented(line: RecipeLine, condition: str | None) -> RecipeLine:
    if condition is None or condition in (line.comment or ""):
        return line
    return RecipeLine(line.value, f"{condition}; {line.comment}" if line.comment else condition)


def _conditional(
    invocation: Invocation,
    parsed: ParsedArguments,
    words: Sequence[Word],
    args: Mapping[str, RecipeLine],
) -> Iterator[Problem]:
    """Yield problems about conditional settings that the recipe sets unconditionally."""
    for argument in parsed.parsed:
        found = [words[index] for index in (argument.index, *argument.value_indices)]
        word = next((word for word in found if word.condition), None)
        if word is None or argument.name not in args:
            continue
        flag = found[0].text.partition("=")[0]
        flag = flag if flag.startswith("-") else argument.argument.flag
        verb = "is set" if found[0].condition else "has this value"
        yield _always(f"{flag} {verb}", word)
    for variable, word in invocation.env.items():
        if word.condition:
            yield _always(f"{variable} is set", word)


def _always(what: str, word: Word) -> Problem:
    return Problem(
        f"{what} {word.condition}; the recipe always sets it",
        word.place,
        "remove it from the recipe if the condition does not hold",
    )


def _remarks(invocation: Invocation) -> list[str]:
    """Return remarks on omitted parts: one line per part, or per reason shared by many parts."""
    by_reason: dict[str, list[Dropped]] = {}
    for dropped in invocation.dropped:
        by_reason.setdefault(dropped.why, []).append(dropped)
    if invocation.kind is InvocationKind.SLIME:
        by_reason.setdefault(_OF_SLIME, []).extend(
            Dropped(
                option if word.text == option else f"{option} {word.text}", word.place, _OF_SLIME
            )
            for option, word in invocation.extras.items()
            if option not in (GPUS, MODEL)
        )
    found: list[str] = []
    for why, parts in by_reason.items():
        if len(parts) > _FEW:
            names = " ".join(part.text.partition(" ")[0].partition("=")[0] for part in parts)
            found.append(f"{parts[0].place}: left out {len(parts)} items ({why}): {names}")
        else:
            found += [f"{part.place}: left out `{masked(part.text)}`: {part.why}" for part in parts]
    return found


def _config_file(
    parsed: ParsedArguments,
    found: EffectiveWords,
    invocation: Invocation,
    args: dict[str, RecipeLine],
) -> list[str]:
    """Return remarks on `--config`, and set or remove `config` in `args`.

    SGLang reads `--config FILE` before its parser runs, and only as two tokens (server_args.py: `if
    "--config" in argv`).
    """
    if found.config is not None:
        args["config"] = value_of(found.config)
        return [
            f"{found.config.place}: the arguments in that file are not in this recipe; import it,"
            " too"
        ]
    config = invocation.config
    if config is not None and config.text is not None and invocation.kind in _COMMANDS:
        return [f"{invocation.place}: the arguments in {config.shown} are part of this recipe"]
    remarks = []
    for argument in parsed.parsed:
        if argument.name == "config":
            word = found.words[argument.index]
            del args["config"]
            remarks.append(f"{word.place}: left out `{word.text}`: the engine ignores this form")
    return remarks


def _from_slime(invocation: Invocation, args: Mapping[str, RecipeLine]) -> dict[str, RecipeLine]:
    """Return `args` plus the model and `tp_size` from slime's own options."""
    found = dict(args)
    for option, word in invocation.extras.items():
        if option == GPUS:
            sizes = {canonical(name): line.value for name, line in found.items()}
            stages = sizes.get("pp_size", 1)
            size = value_of(word)
            if word.text.isdigit() and isinstance(stages, int):
                size = RecipeLine(int(word.text) // max(1, stages))
            elif "pp_size" in sizes:
                size = RecipeLine(OPEN, f"`{word.text}` ({option}) divided by pp_size")
            if size.value not in (0, 1):
                found["tp_size"] = RecipeLine(size.value, size.comment or f"slime's {option}")
        elif option == MODEL:
            line = value_of(word)
            found["model_path"] = RecipeLine(line.value, line.comment or f"slime's {option}")
    return found


def _ignored_by_slime(parsed: ParsedArguments, words: Sequence[Word]) -> list[str]:
    """Return a remark, if any, on arguments that slime sets itself, regardless of the command."""
    found = [item for item in parsed.parsed if canonical(item.dest) in OWN]
    if not found:
        return []
    whys = {
        prefixed(words[item.index].text.partition("=")[0]): OWN[canonical(item.dest)].does
        for item in found
    }
    reasons = ", ".join(f"{flag} ({why})" for flag, why in whys.items())
    return [f"{words[found[0].index].place}: left out arguments that slime ignores: {reasons}"]
