"""What to write instead of a value that the engine's parser refused."""

from __future__ import annotations

from speclaunch.engine.argument import Argument, ArgumentKind
from speclaunch.engine.catalogue import Catalogue, held_versions
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.nearest import nearest
from speclaunch.engine.renames import CONVERSIONS, REMOVALS, other_names
from speclaunch.patterns import lazy

_CHOICE = lazy(r"invalid choice: (?:'(?P<text>[^']*)'|(?P<bare>[^\s(]+))")
_ADVICE = (
    # argparse's words, and the remedy; {flag}, {name} and {example} are filled in
    ("invalid int value: ", "write a whole number for {name}{example}"),
    ("invalid float value: ", "write a number for {name}{example}"),
    ("invalid loads value: ", "write JSON for {name}: '{{\"key\": 1}}'"),
    ("expected one argument", "give {flag} a value, or remove it"),
    ("expected at least one argument", "give {flag} its values, or remove it"),
    ("ignored explicit argument", "write {flag} without a value: it is a switch"),
)


def value_advice(message: str, argument: Argument, catalogue: Catalogue) -> str | None:
    """The remedy for one of argparse's messages about `argument`; None where it says it itself."""
    if argument.kind is ArgumentKind.REFUSED:
        return _refused(argument.name)
    if found := _CHOICE.search(message):
        return _choice(found["text"] or found["bare"] or "", argument, catalogue)
    default = argument.default
    number = isinstance(default, int | float) and not isinstance(default, bool)
    example = f", {default} for example" if number else ""
    for words, advice in _ADVICE:
        if words in message:
            return advice.format(flag=argument.flag, name=argument.name, example=example)
    return None


def _refused(name: str) -> str | None:
    """What took the place of a flag that is in the parser only to be refused."""
    became = next((entry for entry in CONVERSIONS if entry.old == name), None)
    if became is not None:
        return f"write --{became.new.replace('_', '-')} {became.value}"
    return REMOVALS.get(name)


def _choice(given: str, argument: Argument, catalogue: Catalogue) -> str:
    near = nearest(given, [str(choice) for choice in argument.choices or ()], 1)
    if near:
        return f"did you mean {near[0]}?"
    taken = _taken_by(given, argument)
    if taken:
        several = f"{taken[0]} to {taken[-1]} accept"
        span = f"{taken[0]} accepts" if len(taken) == 1 else several
        return f"SGLang {span} {given}; for {catalogue.version} choose one of those"
    return f"set {argument.name} to one of those"


def _taken_by(given: str, argument: Argument) -> list[str]:
    """The releases whose parser has this choice."""
    found = []
    for version in held_versions():
        catalogue = load_catalogue(version)
        names = (argument.name, *other_names(argument.name))
        its = next((one for one in map(catalogue.by_name, names) if one is not None), None)
        if its is not None and given in map(str, its.choices or ()):
            found.append(version)
    return found
