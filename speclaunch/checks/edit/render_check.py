"""Render deployments, and prove before writing that each text starts its deployment."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.checks.edit.checked_text import OutputCheck, configured
from speclaunch.checks.edit.round_trip import (
    ANYTHING,
    MISSING,
    Meaning,
    defaults,
    differences,
    meaning_of,
    require_no_differences,
)
from speclaunch.checks.lint.recipe_findings import findings_across, unsilenced
from speclaunch.checks.rules.examine import Lookup, PreflightError, check_request, check_rules
from speclaunch.checks.rules.interface import Finding, Rule, RuleResults, Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core import InputError, Place, SpeclaunchError, is_secret_variable
from speclaunch.deployments import (
    ALL_ADDRESSES,
    SET_BY_SLIME,
    Assembled,
    Baseline,
    Invocation,
    InvocationKind,
    Prepared,
    Reading,
    Recipe,
    RenderedCommand,
    Renderer,
    Rendering,
    Role,
    assemble,
    from_invocation,
    launch_words,
    load,
    prepare,
    read_text,
    select_role,
    settings_of,
)
from speclaunch.engine import (
    Catalogue,
    Facts,
    Request,
    RequestedValue,
    canonical,
    is_secret_text,
    is_written_secret,
    resolve,
    unset_in,
)


def plan_rendering(
    recipe: Recipe,
    engine: str | None,
    lookup: Lookup,
    *,
    role: str | None = None,
    bare: bool = False,
    carries_speclaunch: bool = True,
    program: tuple[str, ...] | None = None,
    baseline: Baseline | None = None,
) -> Assembled:
    """Return all roles, or only `role`, each planned for its declared hardware, not this machine's.

    All roles must use the same engine version. See `assemble` for the other options. Raises
    InputError, LaunchError.
    """
    prepared = tuple(prepare(part, engine, dry_run=True) for part in _chosen(recipe, role))
    _require_same_version(prepared)
    plans = []
    for launch in prepared:
        request = launch.request({})
        plans.append(resolve(request, _facts_of(launch, lookup).facts(request)))
    return assemble(
        recipe,
        prepared,
        plans,
        bare=bare,
        carries_speclaunch=carries_speclaunch,
        program=program,
        baseline=baseline,
    )


def _chosen(recipe: Recipe, role: str | None) -> tuple[Recipe, ...]:
    return recipe.roles if role is None else (select_role(recipe, role),)


def _require_same_version(prepared: Sequence[Prepared]) -> None:
    versions = dict.fromkeys(launch.version for launch in prepared)
    if len(versions) > 1:
        listed = ", ".join(f"{launch.recipe.role}: {launch.version}" for launch in prepared)
        raise InputError(
            f"the roles use different SGLang versions ({listed})",
            help="set one version with --engine VERSION",
        )


def _facts_of(prepared: Prepared, lookup: Lookup) -> Lookup:
    name = prepared.recipe.deployment.hardware.name
    return lookup.on(name, cpu=prepared.cpu is not None)


def rendered(renderer: Renderer, assembled: Assembled) -> str:
    """Return a deployment's text, verified to start it. Raises PreflightError if unsupported."""
    rendering = assembled.rendering
    refused = renderer.refuses(rendering)
    if refused:
        raise PreflightError(refused)
    text = renderer.render(rendering)
    if rendering.runs_speclaunch:
        require_same_recipe(renderer, text, assembled)
    elif renderer.commands(rendering):
        require_same_commands(renderer, text, rendering, assembled.prepared[0].catalogue)
    found = [*_shown_secrets(rendering, text), *renderer.errors(rendering, text)]
    _require_none(renderer, found, "", text, rendering)
    return text


def read_back(text: str, suffix: str) -> Reading:
    """Return the server commands of a rendered text, as `lint` reads them."""
    return read_text(text.encode(), f"rendered{suffix}", suffix)


def require_same_commands(
    renderer: Renderer, text: str, rendering: Rendering, catalogue: Catalogue
) -> None:
    """Raise RoundTripError if the text does not start the engines of `rendering`.

    Allowed differences: secrets from variables, arguments in `platform_args`, and arguments
    that slime itself sets.
    """
    found = [*_differences(renderer, text, rendering, catalogue)]
    expected = "\n".join(" ".join([*role.program, *role.words]) for role in rendering.roles)
    _require_none(renderer, found, expected, text, rendering)


def require_same_recipe(renderer: Renderer, text: str, assembled: Assembled) -> None:
    """Raise RoundTripError if a text's recipe or speclaunch command differs from `assembled`."""
    rendering = assembled.rendering
    found = [*_recipe_differences(renderer, text, assembled)]
    _require_none(renderer, found, rendering.recipe or "", text, rendering)


def _require_none(
    renderer: Renderer, found: list[str], expected: str, text: str, rendering: Rendering
) -> None:
    hidden = [value for role in rendering.roles for value in secrets_of(role)]
    require_no_differences(f"render-{renderer.target}", found, expected, text, hidden)


def secrets_of(role: Role) -> list[str]:
    """Return the known secret values of a role, which no text may show."""
    found = [
        value
        for argument in role.rendered_args.arguments
        if argument.secret
        for value in argument.values
    ]
    found += [
        v for n, v in role.env.items() if v and (is_secret_variable(n) or is_written_secret(v))
    ]
    return [value for value in found if not unset_in(value)]


def _shown_secrets(rendering: Rendering, text: str) -> Iterator[str]:
    for role in rendering.roles:
        if any(len(value) > 3 and value in text for value in secrets_of(role)):
            yield f"it shows a secret of {role.name}"


def _differences(
    renderer: Renderer, text: str, rendering: Rendering, catalogue: Catalogue
) -> Iterator[str]:
    reading = read_back(text, renderer.suffix)
    expected = renderer.commands(rendering)
    if len(reading.invocations) != len(expected) or reading.problems:
        yield f"it contains {len(reading.invocations)} commands, not {len(expected)}"
        return
    for invocation, command in zip(reading.invocations, expected, strict=True):
        label = f"{command.role.name}: " if len(expected) > 1 else ""
        for what in _command_differences(invocation, command, catalogue):
            yield f"{label}{what}"


def _command_differences(
    invocation: Invocation, command: RenderedCommand, catalogue: Catalogue
) -> Iterator[str]:
    role = command.role
    yield from _environment(invocation, command)
    expected = meaning_of(role.words, catalogue)
    words = [word.text for word in invocation.words]
    opaque = {index for index, word in enumerate(invocation.words) if not word.evaluated}
    got = meaning_of(words, catalogue, opaque)
    if expected is None or got is None:
        yield f"SGLang {catalogue.version} refuses it"
        return
    for name, texts in command.platform_args.items():
        if not command.agrees(name, got.explicit.get(name)):
            yield f"{name} is {got.explicit.get(name)}, not {texts} as set by the platform"
    free = {*command.platform_args}
    for argument in role.rendered_args.arguments:
        is_unknown = argument.secret or argument.unset or any(map(is_secret_text, argument.values))
        if is_unknown and argument.name in got.explicit:
            free.add(argument.name)
    slime = invocation.kind is InvocationKind.SLIME
    explicit = from_invocation(invocation, role.name, catalogue).values if slime else {}
    if slime:
        own = defaults(catalogue)
        free |= {n for n in SET_BY_SLIME if _value(got, n) == own.get(n, MISSING)}
        free |= {
            name for name, argument in explicit.items() if argument.value == _value(expected, name)
        }
    yield from map(str, expected.differences(got, dict.fromkeys(free, ANYTHING)))
    if slime:
        size = explicit["tp_size"].value if "tp_size" in explicit else 1
        if size != expected.values.get("tp_size", 1):
            yield f"slime sets tp_size {size}, not {expected.values.get('tp_size', 1)}"
        if any(canonical(name) == "tp_size" for name in got.explicit):
            yield "only slime may set tp_size"


def _value(meaning: Meaning, name: str) -> Any:
    return meaning.values.get(name, MISSING)


def _environment(invocation: Invocation, command: RenderedCommand) -> Iterator[str]:
    expected: dict[str, str | None] = {}  # None: the text must take it from outside
    for name, value in command.role.env.items():
        if value is not None:
            is_hidden = is_secret_variable(name) or is_secret_text(value) or unset_in(value)
            expected[name] = None if is_hidden else value
    found = {
        name: word.text if word.evaluated or name in command.env else None
        for name, word in invocation.env.items()
    }
    for difference in differences({}, found, {**expected, **command.env}):
        yield f"the variable {difference.name} would change"


def _recipe_differences(renderer: Renderer, text: str, assembled: Assembled) -> Iterator[str]:
    rendering = assembled.rendering
    expected = Counter(
        tuple(launch_words(rendering, command.role, command.platform_args))
        for command in renderer.commands(rendering)
    )
    if Counter(renderer.launches(text)) != expected:
        yield f"it starts {renderer.launches(text)}, not {list(expected)}"
    own = renderer.recipe_in(text)
    if own is None:
        yield "it contains no recipe"
        return
    with tempfile.TemporaryDirectory(prefix="speclaunch-") as folder:
        path = Path(folder) / f"{rendering.name}.yaml"
        path.write_text(own, encoding="utf-8")
        try:
            recipe = load(str(path))
            for role, prepared in zip(rendering.roles, assembled.prepared, strict=True):
                (part,) = _chosen(recipe, role.name if rendering.has_roles else None)
                found = prepare(part, prepared.version, dry_run=True)
                for what in _launch_differences(prepared, found):
                    yield f"{role.name}: {what}"
        except SpeclaunchError as error:
            yield f"its recipe is refused: {error}"


def _launch_differences(before: Prepared, after: Prepared) -> Iterator[str]:
    requested, found = before.rendered_args, after.rendered_args
    tokens = {argument.name: argument.tokens for argument in found.arguments}
    unknown = {
        argument.name for argument in requested.arguments if argument.unset or argument.secret
    }
    free = dict.fromkeys(unknown & tokens.keys(), ANYTHING)
    before_ = {argument.name: argument.tokens for argument in requested.arguments}
    yield from map(str, differences(before_, tokens, free))
    if set(found.env) != set(requested.env):
        yield f"its variables are {sorted(found.env)}"
    if settings_of(after) != settings_of(before):
        yield "its launch or recovery changed"


def errors_of_form(text: str, suffix: str, own: Sequence[Request]) -> tuple[Finding, ...]:
    """Return the errors of a rendered text that the recipe itself lacks.

    `own`: the recipe's requests, one for each command of the text, in order. Facts are not read,
    because the text and the recipe share them. Each finding is returned once, with its place in the
    recipe.
    """
    commands = read_back(text, suffix).invocations
    found: list[Finding] = []
    for invocation, request in zip(commands, own, strict=True):
        written = from_invocation(invocation, request.name, request.catalogue)
        found += [finding for finding in _news(written, request) if finding not in found]
    return tuple(found)


def check_rendering(
    renderer: Renderer, text: str, assembled: Assembled, recipe: Recipe, lookup: Lookup
) -> OutputCheck:
    """Return the errors and warnings of the recipe, and the errors that only `text` has."""
    rendering, path = assembled.rendering, recipe.path
    rules = configured(str(path), (assembled.prepared[0].catalogue.version,)).rules
    found = findings_of_recipe(assembled, recipe, lookup, rules)
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    if not rendering.runs_speclaunch and renderer.commands(rendering):
        names = (role.name for role in rendering.roles)
        of_roles = dict(zip(names, assembled.prepared, strict=True))
        own = [of_roles[command.role.name].request({}) for command in renderer.commands(rendering)]
        errors += unsilenced(errors_of_form(text, renderer.suffix, own), path)
    warnings = tuple(finding for finding in found if finding.severity is Severity.WARNING)
    return OutputCheck(tuple(errors), (), warnings)


def findings_of_recipe(
    assembled: Assembled, recipe: Recipe, lookup: Lookup, rules: Sequence[Rule]
) -> tuple[Finding, ...]:
    """Return the unsuppressed errors and warnings of each role, and of all roles together."""
    found: list[Finding] = []
    for launch in assembled.prepared:
        checked = check_request(launch.request({}), _facts_of(launch, lookup), rules)
        found += unsilenced(checked.results.findings, launch.recipe.path)
    version = assembled.prepared[0].catalogue.version
    found += findings_across(recipe, version, lookup, rules)
    # roles share lines
    once = {(finding.place, finding.code, finding.message): finding for finding in found}
    return tuple(finding for finding in once.values() if finding.severity is not Severity.INFO)


def exposed(renderer: Renderer, rendering: Rendering) -> tuple[str, ...]:
    """Return the roles that listen on all interfaces without an API key."""
    return tuple(
        dict.fromkeys(
            command.role.name
            for command in renderer.commands(rendering)
            if _host(command) in _ALL_INTERFACES
            and command.role.rendered_args.value("api_key") is None
        )
    )


_ALL_INTERFACES = (ALL_ADDRESSES, "::")


def _host(command: RenderedCommand) -> str | None:
    texts = command.platform_args.get("host")
    return texts[0] if texts else command.role.rendered_args.value("host")


def _news(request: Request, own: Request) -> Iterator[Finding]:
    known = Counter(_what(finding, own) for finding in _checked(own).errors)
    for finding in _checked(request).errors:
        what = _what(finding, request)
        known[what] -= 1
        if known[what] < 0:
            yield replace(finding, place=_place_in_recipe(finding, request, own))


def _checked(request: Request) -> RuleResults:
    return check_rules(resolve(request, Facts()), all_rules())


def _what(finding: Finding, request: Request) -> tuple[str, str]:
    """Return what identifies an error in both texts: its code, and the argument or the message."""
    return finding.code, _name(finding, request) or finding.message


def _name(finding: Finding, request: Request) -> str | None:
    there: tuple[RequestedValue, ...] = (*request.values.values(), *request.env.values())
    return next((value.name for value in there if value.place == finding.place), None)


def _place_in_recipe(finding: Finding, request: Request, own: Request) -> Place:
    name = _name(finding, request)
    mine = {**own.values, **own.env}
    return mine[name].place if name in mine else own.place
