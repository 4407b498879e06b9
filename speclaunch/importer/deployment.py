"""A server command that was found, as what a recipe says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speclaunch.engine.argv import ParsedArguments, args_of, parse_argv
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import Catalogue, held_versions
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.errors import Place, Problem
from speclaunch.importer.interface import Invocation, InvocationKind, Word
from speclaunch.importer.recipe_text import Interpolation, Line, recipe_text

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_CLUSTER = re.compile(r"\$\(([A-Z_][A-Z0-9_]*)\)")
_OPEN = "???"
"""OmegaConf's word for a value that has to be given."""
_SLIME_GPUS, _SLIME_MODEL = "--rollout-num-gpus-per-engine", "--hf-checkpoint"


@dataclass(frozen=True, slots=True)
class Imported:
    """A deployment read from somebody's command, ready to be written as a recipe."""

    name: str
    version: str
    """The engine version whose arguments the command was read with."""
    args: Mapping[str, Line]
    env: Mapping[str, Line]
    remarks: tuple[str, ...]
    """What was left out or could not be evaluated, with its place."""
    problems: tuple[Problem, ...] = ()
    """What no version, or not the version asked for, can take."""

    def recipe(self, source: str) -> str:
        """The recipe, its header naming `source` and every remark."""
        header = [f"Imported from {source}, read as a command of SGLang {self.version}."]
        if self.remarks:
            header += ["", *self.remarks]
        algorithm = self.args.get("speculative_algorithm")
        model = self.args.get("model_path")
        description = f"{algorithm.value if algorithm else 'No speculation'} on " + (
            str(model.value) if model and model.value != _OPEN else "a model to be named"
        )
        return recipe_text(header=header, description=description, args=self.args, env=self.env)


def to_deployment(invocation: Invocation, name: str, version: str | None = None) -> Imported:
    """Read a command's arguments as `version`, else as the newest version that takes them all."""
    catalogue, parsed = _parsed(invocation, version)
    problems = tuple(
        Problem(problem.message, _place(invocation, problem.index), problem.help)
        for problem in parsed.problems
        if problem.index is not None  # what is missing (the model) is left open in the recipe
    )
    comments = _comments(invocation, parsed)
    unknown = {
        argument.name
        for argument in parsed.parsed
        for index in argument.value_indices or (argument.index,)
        if not invocation.words[index].evaluated
    }
    args = {
        argument: Line(
            _from_environment(value) if argument in unknown else value, comments.get(argument)
        )
        for argument, value in args_of(parsed).items()
    }
    remarks = [
        f"{dropped.place}: left out `{dropped.text}`: {dropped.why}"
        for dropped in invocation.dropped
    ]
    remarks += _config_file(parsed, invocation, args)
    if invocation.kind is InvocationKind.SLIME:
        args, more = _from_slime(invocation, args)
        remarks += more
    args.setdefault("model_path", Line(_OPEN, "not in the command: name it"))
    env = {
        variable: Line(
            word.text if word.evaluated else _from_environment(word.text),
            None if word.evaluated else word.why,
        )
        for variable, word in invocation.env.items()
    }
    return Imported(name, catalogue.version, args, env, tuple(remarks), problems)


def recipe_name(stem: str, number: int | None = None) -> str:
    """A file's stem as a recipe's name; the number tells several commands of a file apart."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower() or "imported"
    return name if number is None else f"{name}_{number}"


def _parsed(invocation: Invocation, version: str | None) -> tuple[Catalogue, ParsedArguments]:
    words = [word.text for word in invocation.words]
    opaque = {index for index, word in enumerate(invocation.words) if not word.evaluated}
    if version is not None:
        catalogue = load_catalogue(version)
        return catalogue, parse_argv(words, catalogue, opaque=opaque)
    best: tuple[Catalogue, ParsedArguments] | None = None
    for held in reversed(held_versions()):
        catalogue = load_catalogue(held)
        parsed = parse_argv(words, catalogue, opaque=opaque)
        if not parsed.problems:
            return catalogue, parsed
        if best is None or len(parsed.problems) < len(best[1].problems):
            best = catalogue, parsed
    if best is None:
        raise LookupError("no catalogue is held")
    return best


def _place(invocation: Invocation, index: int | None) -> Place:
    if index is None or not 0 <= index < len(invocation.words):
        return invocation.place
    return invocation.words[index].place


def _comments(invocation: Invocation, parsed: ParsedArguments) -> dict[str, str]:
    """For each argument whose value could not be evaluated: why."""
    comments: dict[str, str] = {}
    for argument in parsed.parsed:
        for index in (argument.index, *argument.value_indices):
            word: Word = invocation.words[index]
            if not word.evaluated and not _VARIABLE.fullmatch(word.text):
                comments[argument.name] = (
                    f"not evaluated: {word.why}" if word.why else "not evaluated"
                )
    return comments


def _from_environment(value: object) -> object:
    """`$MODEL` of a script becomes `${oc.env:MODEL}`: the recipe takes it from the same place.

    So does Kubernetes' `$(MODEL)`, whose value comes from the cluster.
    """
    if isinstance(value, str) and (found := _CLUSTER.fullmatch(value)):
        return Interpolation(f"${{oc.env:{found[1]}}}")
    if (
        isinstance(value, str)
        and _VARIABLE.search(value)
        and "$(" not in value
        and "`" not in value
    ):
        return Interpolation(_VARIABLE.sub(lambda m: f"${{oc.env:{m[1] or m[2]}}}", value))
    if isinstance(value, list):
        return [_from_environment(item) for item in value]
    return value


def _config_file(
    parsed: ParsedArguments, invocation: Invocation, args: dict[str, Line]
) -> list[str]:
    """SGLang reads `--config FILE` before its parser does, and only as two words
    (server_args.py: `if "--config" in argv`)."""
    remarks = []
    for argument in parsed.parsed:
        if argument.name != "config":
            continue
        word = invocation.words[argument.index]
        if word.text.startswith("--config="):
            del args["config"]
            remarks.append(f"{word.place}: left out `{word.text}`: the engine ignores this form")
        else:
            remarks.append(
                f"{word.place}: the arguments in that file are not in this recipe; import it, too"
            )
    return remarks


def _from_slime(
    invocation: Invocation, args: Mapping[str, Line]
) -> tuple[dict[str, Line], Sequence[str]]:
    """slime says the model and the GPUs of an engine with options of its own."""
    found = dict(args)
    remarks = []
    for option, word in invocation.extras.items():
        if option == _SLIME_GPUS and word.text.isdigit():
            sizes = {canonical(name): line.value for name, line in found.items()}
            stages = sizes.get("pp_size", 1)
            size = int(word.text) // max(1, stages if isinstance(stages, int) else 1)
            for name in [name for name in found if canonical(name) == "tp_size"]:
                del found[name]  # slime does not look at it
            if size > 1:
                found["tp_size"] = Line(size, f"slime's {option}")
        elif option == _SLIME_MODEL:
            for name in [name for name in found if canonical(name) == "model_path"]:
                del found[name]
            found["model_path"] = Line(
                word.text if word.evaluated else _from_environment(word.text), f"slime's {option}"
            )
        else:
            remarks.append(f"{word.place}: left out `{option}`: an option of slime itself")
    return found, remarks
