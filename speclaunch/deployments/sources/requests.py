"""Build requests from recipes and from server commands.

Both become command-line tokens. speclaunch's copy of the engine's parser, built from the catalogue,
converts their values, so nothing here depends on how a flag is written.

The value of a rejected flag is lost, and no default replaces it. The argument that was probably
meant is unknown to every rule, to the resolution and to the memory budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from speclaunch.core import COMMAND_LINE, Place, Problem
from speclaunch.deployments.sources.effective_words import EffectiveWords, config_file, effective
from speclaunch.deployments.sources.interface import Invocation, InvocationKind, Word
from speclaunch.deployments.sources.slime import GPUS, MODEL, OWN
from speclaunch.engine import (
    ENGINE_VARIABLES,
    Ambiguous,
    ArgvToken,
    Catalogue,
    FromEnvironment,
    RenderedArgs,
    Request,
    RequestedValue,
    RequestOrigin,
    canonical,
    conversion,
    history,
    name_of,
    other_names,
    parse_argv,
    unset_in,
)

if TYPE_CHECKING:
    from speclaunch.deployments.recipe.load import Recipe

_HTTP_SERVERS = (InvocationKind.LAUNCH_SERVER, InvocationKind.SERVE)
"""Kinds that run the engine's HTTP server; Dynamo has its own, and `sglang.Engine` has none."""


def from_recipe(
    recipe: Recipe,
    rendered: RenderedArgs,
    catalogue: Catalogue,
    inherited: Mapping[str, str] | None = None,
) -> Request:
    """Return the request of a recipe, rendered for the version of `catalogue`.

    `inherited` is the environment that the engine inherits from speclaunch. The recipe's variables
    override it.
    """
    found, unset = _command_words(recipe, rendered, catalogue)
    names = {
        recipe.place("args", argument.recipe_name): argument.recipe_name
        for argument in rendered.arguments
    }
    literals = {argument.recipe_name: _literal(*argument.values) for argument in rendered.arguments}

    def place(index: int | None) -> Place:
        return recipe.place("args") if index is None else found.words[index].place

    def name(index: int) -> str:
        return names.get(place(index), found.words[index].text)

    words = [word.text for word in found.words]
    opaque = {index for index, word in enumerate(found.words) if not word.evaluated}
    parsed = parse_argv(words, catalogue, opaque=opaque, with_values=False)
    requested = {
        canonical(item.dest): RequestedValue(
            canonical(item.dest),
            item.stored,
            name(item.index),
            place(item.index),
            name(item.index) not in unset,
            literals.get(name(item.index)),
        )
        for item in parsed.parsed
    }
    problems = [
        Problem(p.message, recipe.place("args", p.name), p.help) for p in rendered.problems
    ] + [
        Problem(
            p.message
            if p.index is None
            else f"SGLang {catalogue.version} refuses `{name(p.index)}`: {p.message}",
            place(p.index),
            p.help,
        )
        for p in parsed.problems
        if p.index is not None or found.unseen is None
    ]
    problems += found.refused
    own = recipe.deployment.engine.env
    env = {
        name: RequestedValue(
            name, text, name, Place(COMMAND_LINE, text=f"{name} of the environment")
        )
        for name, text in (inherited or {}).items()
        if name.startswith(ENGINE_VARIABLES) and name not in own
    }
    env |= {
        name: RequestedValue(
            name,
            text,
            name,
            recipe.place("engine", "env", name),
            not unset_in(text),
            _literal(text),
        )
        for name, text in own.items()
        if text is not None
    }
    return Request(
        recipe.deployment.name,
        RequestOrigin.RECIPE,
        catalogue,
        recipe.start,
        requested,
        env,
        tuple(problems),
        (
            *found.remarks,
            *(
                Problem(h.message, place(h.index) if h.index is not None else None, h.help)
                for h in parsed.hints
            ),
        ),
        unread=_unread(
            [
                *((p.name, f"--{p.name.replace('_', '-')}") for p in rendered.problems),
                *(
                    (name(p.index), words[p.index])
                    for p in parsed.problems
                    if p.index is not None and words[p.index].startswith("--")
                ),
            ],
            requested,
            catalogue,
        ),
        unseen=found.unseen,
        argv=_argv(found.words),
        server_context=recipe.server_context,
        lock_differences=recipe.lock_differences,
    )


def _command_words(
    recipe: Recipe, rendered: RenderedArgs, catalogue: Catalogue
) -> tuple[EffectiveWords, set[str]]:
    """Return the tokens of a recipe and its `config` file, and the unset arguments' names.

    The file is opened as in a launch.
    """
    words = [
        Word(token, recipe.place("args", argument.recipe_name))
        for argument in rendered.arguments
        for token in argument.tokens
    ]
    for index in rendered.unset:
        words[index] = replace(words[index], evaluated=False)
    path = rendered.value("config")
    invocation = Invocation(
        InvocationKind.LAUNCH_SERVER,
        tuple(words),
        recipe.place("args"),
        config=config_file(path) if isinstance(path, str) else None,
    )
    unset = {argument.recipe_name for argument in rendered.arguments if argument.unset}
    return effective(invocation, catalogue), unset


def _literal(*values: str) -> str | None:
    """Return the values' recipe texts, joined; None if no value is from the environment."""
    if not any(isinstance(value, FromEnvironment) for value in values):
        return None
    return "".join(v.literal if isinstance(v, FromEnvironment) else v for v in values)


def from_invocation(invocation: Invocation, name: str, catalogue: Catalogue) -> Request:
    """Return the request of a server command, parsed for the version of `catalogue`."""
    found = effective(invocation, catalogue)
    words = found.words
    is_open = [not w.evaluated or bool(not w.text and (w.defaults or w.why)) for w in words]
    opaque = {index for index, open_ in enumerate(is_open) if open_}  # "${MODEL:-}" is to be set

    def place(index: int | None) -> Place:
        return invocation.place if index is None else words[index].place

    parsed = parse_argv([word.text for word in words], catalogue, opaque=opaque, with_values=False)
    requested: dict[str, RequestedValue] = {}
    overridden: list[RequestedValue] = []
    for item in parsed.parsed:
        known = not opaque & {item.index, *item.value_indices}
        field_name = canonical(item.dest)
        value = RequestedValue(field_name, item.stored, item.written, place(item.index), known)
        if field_name in requested:
            overridden.append(requested[field_name])
        requested[field_name] = value
    of_speculation = {field for field in requested if field.startswith("speculative_")}
    may_set: dict[str, str] = {}
    if found.elided:
        needed = {"speculative_algorithm": of_speculation, "tp_size": "nnodes" in requested}
        open_names = {"host", *(name for name, may_be_set in needed.items() if may_be_set)}
        may_set = dict.fromkeys(open_names - requested.keys(), f"{found.elided[0].text} may set it")
    slime = invocation.kind is InvocationKind.SLIME
    ignored: list[RequestedValue] = []
    if slime:
        ignored = [requested.pop(name) for name in OWN if name in requested]
        requested |= _from_slime(invocation.extras, requested)
        if not invocation.program and "tp_size" not in requested:
            may_set["tp_size"] = f"{GPUS}, which this part does not show, sets it"
    return Request(
        name,
        RequestOrigin.SLIME if slime else RequestOrigin.COMMAND,
        catalogue,
        invocation.place,
        requested,
        _words(invocation.env),
        (*found.refused, *_problems(parsed.problems, place, skip_missing=_open(invocation, found))),
        (*found.remarks, *_problems(parsed.hints, place)),
        _words(invocation.extras),
        tuple(overridden),
        ignored=tuple(ignored),
        unread=_unread(
            [
                (flag.partition("=")[0], flag)
                for flag in (words[p.index].text for p in parsed.problems if p.index is not None)
                if flag.startswith("--")
            ],
            requested,
            catalogue,
        )
        | may_set,
        unseen=found.unseen,
        argv=_argv(found.words),
        server_context=invocation.server_context,
        serves_http=invocation.kind in _HTTP_SERVERS,
        read_variables=invocation.read_variables,
    )


def _unread(
    refused: Iterable[tuple[str, str]],
    requested: Mapping[str, RequestedValue],
    catalogue: Catalogue,
) -> dict[str, str]:
    """Return the arguments that rejected flags probably mean, each with the reason.

    `refused` contains pairs of a rejected text and its flag. A misspelled flag never means an
    argument that is set explicitly.
    """
    found: dict[str, str] = {}
    for written, flag in refused:
        exact = is_exact(flag, catalogue)
        for dest in meant_by(flag, catalogue):
            name = canonical(dest)
            if exact or name not in requested:
                reason = f"{written} was rejected"
                if not exact:
                    reason += f" and may mean {name}"
                found.setdefault(name, reason)
    return found


def _open(invocation: Invocation, found: EffectiveWords) -> bool:
    """True if the model may be set elsewhere, or was already reported missing."""
    kinds = (InvocationKind.SLIME, InvocationKind.CONFIG, InvocationKind.SRT_SLURM)
    elsewhere = invocation.kind in kinds
    missed = any("arguments are required" in problem.message for problem in found.refused)
    return elsewhere or missed or bool(found.elided) or found.unseen is not None


def _from_slime(
    extras: Mapping[str, Word], requested: Mapping[str, RequestedValue]
) -> dict[str, RequestedValue]:
    """Return `model_path` and `tp_size` from slime's own options."""
    found: dict[str, RequestedValue] = {}
    model = extras.get(MODEL)
    if model is not None:
        found["model_path"] = RequestedValue(
            "model_path", model.text, MODEL, model.place, model.evaluated
        )
    gpus = extras.get(GPUS)
    if gpus is not None and gpus.text.isdigit():
        pipeline = requested.get("pp_size")
        stages = pipeline.value if pipeline is not None and pipeline.known else 1
        size = int(gpus.text) // max(1, int(stages))
        found["tp_size"] = RequestedValue("tp_size", size, GPUS, gpus.place)
    elif gpus is not None:
        found["tp_size"] = RequestedValue("tp_size", gpus.text, GPUS, gpus.place, known=False)
    return found


def from_words(
    words: Sequence[str], env: Mapping[str, str], catalogue: Catalogue, name: str = "command"
) -> Request:
    """Return the request of a server's command-line arguments."""

    def word(text: str) -> Word:
        return Word(text, Place(COMMAND_LINE, text=text))

    invocation = Invocation(
        InvocationKind.LAUNCH_SERVER,
        tuple(word(text) for text in words),
        Place(COMMAND_LINE, text=name),
        {variable: word(text) for variable, text in env.items()},
    )
    return from_invocation(invocation, name, catalogue)


def _argv(words: Iterable[Word]) -> tuple[ArgvToken, ...]:
    return tuple(
        ArgvToken(word.text, word.place, word.evaluated and not word.placeholder) for word in words
    )


def _words(found: Mapping[str, Word]) -> dict[str, RequestedValue]:
    return {
        name: RequestedValue(name, word.text, name, word.place, word.evaluated)
        for name, word in found.items()
    }


def _problems(
    found: Sequence[Any], place: Callable[[int | None], Place], *, skip_missing: bool = False
) -> tuple[Problem, ...]:
    return tuple(
        Problem(problem.message, place(problem.index), problem.help)
        for problem in found
        if problem.index is not None or not skip_missing
    )


_NEAR = 2
"""Maximum number of similar flags that a problem suggests: did you mean … or …?"""


def meant_by(flag: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Return the destinations of the arguments that `flag` probably means.

    A flag that the version knows means its argument, whose value was rejected. A shortened flag
    means all flags that begin with it. A name from another release means its argument. Any other
    flag means similar flags, if there are any.
    """
    return tuple(dict.fromkeys(_destinations(flag.partition("=")[0], catalogue)))


def is_exact(flag: str, catalogue: Catalogue) -> bool:
    """True if the parser knows the flag, so only its value can have been rejected."""
    return isinstance(catalogue.full_flag(flag), str)


def _destinations(flag: str, catalogue: Catalogue) -> Iterator[str]:
    flag_match = catalogue.full_flag(flag)
    if isinstance(flag_match, str):
        yield from _of(flag_match, catalogue)
    elif isinstance(flag_match, Ambiguous):
        for candidate in flag_match.candidates:
            yield from _of(candidate, catalogue)
    else:
        name = name_of(flag)
        became = conversion(name)
        same = [*other_names(name), *([became.new] if became is not None else [])]
        known = [found for name in same for found in _of(name, catalogue)]
        yield from known
        if not known and history(name) is None:  # flags of other releases are not misspelled
            for near in catalogue.close(flag, _NEAR):
                yield from _of(near, catalogue)


def _of(name: str, catalogue: Catalogue) -> Iterator[str]:
    argument = catalogue.by_name(name)
    if argument is not None:
        yield argument.dest
