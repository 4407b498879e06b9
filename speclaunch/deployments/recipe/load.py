"""Validate a composed recipe and each of its roles as a Deployment. Problems include places.

A role is merged over a composed recipe. Mappings are merged recursively, and anything else replaces
the old value, as between files. Null removes a shared value. A null argument remains and means the
engine's default. A null variable remains and unsets the engine's variable. An argument is replaced
under any of its names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import COMMAND_LINE, InputError, Place, Problem, recipes_dir
from speclaunch.deployments.recipe.compose import compose
from speclaunch.deployments.recipe.find_recipe import LOCK_SUFFIX, is_lock_file
from speclaunch.deployments.recipe.resolve_values import restored, unset_places, without_unset
from speclaunch.deployments.recipe.sections import (
    MOST_ROLES,
    ROLES,
    RecoveryPolicy,
    plain_deployment,
)
from speclaunch.deployments.recipe.source import (
    Composition,
    KeyPath,
    RecipeProvenance,
    copied,
    exists,
)
from speclaunch.engine import (
    DEFAULT_LIMITS,
    FitFloors,
    FitLimits,
    Group,
    Router,
    ServerContext,
    Setting,
    Upstream,
    canonical,
    suggest,
    unset_in,
    value_of,
)

if TYPE_CHECKING:
    from speclaunch.deployments.recipe.schema import Deployment, Recovery


ROUTER = "router"
_OF_THE_WHOLE = (ROLES, ROUTER)
"""Sections that a role cannot have."""
_OF_A_ROLE = ("replicas",)
"""Keys that only a role can have."""
_MODE = "disaggregation_mode"
SIDES = ("prefill", "decode")
"""Roles whose names imply their `disaggregation_mode`."""


def role_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the well-formed roles in a recipe's values."""
    roles = values.get(ROLES)
    if not isinstance(roles, dict):
        return ()
    found = (
        name
        for name, role in roles.items()
        if isinstance(name, str) and (role is None or isinstance(role, dict))
    )
    return tuple(islice(found, MOST_ROLES))


def shared(composition: Composition) -> Composition:
    """Return the recipe, with empty `args` if only its roles set arguments."""
    if not role_names(composition.values):
        return composition
    return replace(composition, values={"args": {}, **composition.values})


def of_role(composition: Composition, role: str) -> Composition:
    """Return one role of a recipe as a separate recipe, named NAME/ROLE."""
    own = dict(composition.values[ROLES][role] or {})
    for key in _OF_A_ROLE:
        own.pop(key, None)
    values = {
        key: copied(value) for key, value in composition.values.items() if key not in _OF_THE_WHOLE
    }
    gone: list[KeyPath] = []
    own_args = own.pop("args", None)
    args = _laid_over_args(values.pop("args", None), own_args, gone)
    _lay_over(values, own, (), gone)
    values["args"] = args
    at = (ROLES, role)
    places = _places(composition.provenance, at, gone)
    name = values.get("name", composition.name)
    values["name"] = f"{name}/{role}"
    sets_mode = isinstance(own_args, dict) and _MODE in map(canonical, map(str, own_args))
    if role in SIDES and isinstance(args, dict) and not sets_mode:
        for other in [name for name in args if canonical(name) == _MODE]:
            del args[other]
            places.pop(("args", other), None)
        args[_MODE] = role
        place = composition.provenance.find(at)
        if place is not None:
            places["args", _MODE] = place
    return replace(composition, values=values, provenance=RecipeProvenance(places))


def place_of(composition: Composition, role: str) -> Place:
    """Return the place at which a role begins."""
    at = (ROLES, role)
    found = composition.provenance
    return found.places.get(at) or found.first_below(at) or Place(str(composition.path))


def invented(composition: Composition) -> Iterator[Problem]:
    """Yield problems for roles that exist only in an override: `roles.prefil.args.tp_size=4`."""
    names = role_names(composition.values)
    places = composition.provenance.places
    written = {
        key[1]
        for key, place in places.items()
        if len(key) > 1 and key[0] == ROLES and place.path != COMMAND_LINE
    }
    for name in names:
        if name in written:
            continue
        place = composition.provenance.first_below((ROLES, name)) or Place(COMMAND_LINE)
        if place.text is None or place.text.startswith("+"):
            continue
        known = [str(name) for name in names if name in written]
        if not known:
            text = f"the recipe has no roles: unknown role {name!r}"
            yield Problem(text, place, "set args.… for the entire recipe, without `roles.NAME.`")
            continue
        listed = f"the roles are {', '.join(known)}"
        near = suggest(name, known)
        help_ = f"{near} {listed}" if near else f"{listed}; `+{place.text}` adds one"
        yield Problem(f"the recipe has no role {name!r}", place, help_)


def _laid_over_args(base: Any, own: Any, gone: list[KeyPath]) -> Any:
    """Return `base` with `own` merged over it. An argument is replaced under any of its names.

    Append the removed keys to `gone`.
    """
    if own is None:
        return {} if base is None else base
    if not isinstance(own, dict) or not isinstance(base, dict | None):
        return own
    values = dict(base or {})
    for name in own:
        same = canonical(str(name))
        for other in [name for name in values if name not in own and canonical(str(name)) == same]:
            del values[other]
            gone.append(("args", other))
    for name, value in own.items():
        old = values.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            _lay_over(old, value, ("args", name), gone, keeps_null=True)
        else:
            values[name] = value
    return values


def _lay_over(
    into: dict[Any, Any],
    own: Mapping[Any, Any],
    path: KeyPath,
    gone: list[KeyPath],
    *,
    keeps_null: bool = False,
) -> None:
    for key, value in own.items():
        here = (*path, key)
        old = into.get(key)
        null_remains = keeps_null or here == ("engine", "env")
        if value is None and not keeps_null:
            into.pop(key, None)
            gone.append(here)
        elif isinstance(value, dict) and isinstance(old, dict):
            _lay_over(old, value, here, gone, keeps_null=null_remains)
        elif isinstance(value, dict):
            into[key] = {}
            _lay_over(into[key], value, here, gone, keeps_null=null_remains)
        else:
            into[key] = value


def _places(provenance: RecipeProvenance, at: KeyPath, gone: list[KeyPath]) -> dict[KeyPath, Place]:
    """Return a role's places, merged over the shared places without the keys in `gone`."""
    depth = len(at)
    own = {key[depth:]: place for key, place in provenance.places.items() if key[:depth] == at}
    taken = {path: len(path) for path in gone}
    found = {
        key: place
        for key, place in provenance.places.items()
        if key[0] not in _OF_THE_WHOLE
        and not any(key[:length] == path for path, length in taken.items())
    }
    return {**found, **{key: place for key, place in own.items() if key}}


# -- server context of each role, for rules and renderers

PLATFORM = "recipe"
"""Value of `Group.platform` for the roles of a recipe."""
PROGRAM = "sglang_router"
WORKER = "worker"


def server_context(
    composition: Composition, roles: Sequence[tuple[str, Composition]]
) -> dict[str, ServerContext]:
    """Return each role's server context, by role name."""
    routers = _routers(composition, roles)
    name = str(composition.values.get("name", composition.name))
    group = Group(name, PLATFORM, _place(composition, ()), routers)
    return {
        role: ServerContext(
            group,
            role,
            place_of(composition, role),
            nodes=_argument(part, "nnodes"),
            replicas=_replicas(composition, role),
        )
        for role, part in roles
    }


def _routers(
    composition: Composition, roles: Sequence[tuple[str, Composition]]
) -> tuple[Router, ...]:
    router = composition.values.get(ROUTER)
    if not isinstance(router, dict):
        return ()
    args = router.get("args")
    options = {
        str(name).replace("_", "-"): _setting(composition, (ROUTER, "args", name), value)
        for name, value in (args if isinstance(args, dict) else {}).items()
        if value is not None
    }
    return (
        Router(
            ROUTER,
            PROGRAM,
            _place(composition, (ROUTER,)),
            tuple(_upstream(composition, role, part) for role, part in roles),
            options,
        ),
    )


def _upstream(composition: Composition, role: str, part: Composition) -> Upstream:
    mode = value_of(_args(part), "disaggregation_mode")
    return Upstream(
        mode if mode in SIDES else WORKER,
        None,
        _argument(part, "port"),
        place_of(composition, role),
        _argument(part, "disaggregation_bootstrap_port") if mode == "prefill" else None,
    )


def _replicas(composition: Composition, role: str) -> Setting | None:
    own = composition.values[ROLES][role] or {}
    if own.get("replicas") is None:
        return None
    return _setting(composition, (ROLES, role, "replicas"), own["replicas"])


def _argument(part: Composition, name: str) -> Setting | None:
    value = value_of(_args(part), name)
    if value is None:
        return None
    used_name = next(key for key in _args(part) if value_of({key: True}, name))
    return _setting(part, ("args", used_name), value)


def _args(part: Composition) -> Mapping[str, Any]:
    found = part.values.get("args")
    return found if isinstance(found, dict) else {}


def _setting(part: Composition, path: tuple[str, ...], value: Any) -> Setting:
    return Setting(value, _place(part, path), not unset_in(value))


def _place(part: Composition, path: tuple[str, ...]) -> Place:
    return part.provenance.find(path) or Place(str(part.path))


class Unset(Struct, frozen=True):
    """Recipe value that needs an unset environment variable."""

    key: str
    variable: str
    place: Place


class Recipe(Struct, frozen=True):
    """Recipe with its file and the place of each value."""

    deployment: Deployment
    path: Path
    provenance: RecipeProvenance

    unset: tuple[Unset, ...] = ()
    """Values that need an unset variable. Checks treat them as unknown; a launch fails."""
    parts: tuple[Recipe, ...] = ()
    """One recipe for each role: its keys merged over the shared keys."""
    server_context: ServerContext | None = None
    """A role's deployment, replicas and number of hosts; None if the recipe is not a role."""
    lock_differences: tuple[Problem, ...] = ()
    """Differences from the recipe's lock, if compared."""

    @property
    def roles(self) -> tuple[Recipe, ...]:
        """Servable recipes: one per role, named NAME/ROLE, or this recipe if it has no roles."""
        return self.parts or (self,)

    @property
    def role(self) -> str | None:
        return None if self.server_context is None else self.server_context.role

    @property
    def is_shipped(self) -> bool:
        return self.path.is_relative_to(recipes_dir().resolve())

    @property
    def lock_path(self) -> Path:
        """Path of the recipe's lock: next to the recipe, or (if shipped) in the working directory.

        For a lock, its own path.
        """
        if is_lock_file(self.path):
            return self.path
        role = f".{self.role}" if self.role else ""
        folder = Path.cwd() if self.is_shipped else self.path.parent
        return folder / f"{self.path.stem}{role}{LOCK_SUFFIX}"

    @property
    def start(self) -> Place:
        """Place of the role, or of the first line if the recipe is not a role."""
        return Place(str(self.path)) if self.server_context is None else self.server_context.place

    def place(self, *keys: str | int) -> Place:
        """Return a value's place; the recipe's first line if it has none."""
        return self.provenance.find(keys) or Place(str(self.path))

    def require_environment(self) -> None:
        """Raise InputError for all values that need an unset variable, if any."""
        if self.unset:
            raise InputError(
                Problem(
                    f"{variable.key}: the environment variable {variable.variable} is not set",
                    variable.place,
                    f"set it: export {variable.variable}=…; or set a default: "
                    f"${{oc.env:{variable.variable},…}}",
                )
                for variable in self.unset
            )


def load(recipe: str, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()) -> Recipe:
    """Return a recipe, composed and validated. Raises InputError with every problem."""
    return validate(compose(recipe, overrides, config_dirs))


def load_sound_part(
    recipe: str, config_dirs: Sequence[Path] = ()
) -> tuple[Recipe | None, tuple[Problem, ...]]:
    """Return the recipe without values that its schema rejects, and the problems of these values.

    The recipe is None if too little remains. Raises InputError if it cannot be composed.
    """
    composition = compose(recipe, (), config_dirs)
    try:
        return validate(composition), ()
    except InputError as error:
        refused = error.problems
    try:
        return validate(replace(composition, values=_pruned(composition))), refused
    except InputError:
        return None, refused


def _pruned(composition: Composition) -> dict[str, Any]:
    """Return the values without those that the schema rejects."""
    from pydantic import ValidationError  # noqa: PLC0415

    from speclaunch.deployments.recipe.schema import Deployment, refused_paths  # noqa: PLC0415

    left = copy.deepcopy(composition.values)
    for role in (None, *role_names(left)):
        remaining = replace(composition, values=left)
        if role is not None and role not in role_names(left):
            continue
        part = shared(remaining) if role is None else of_role(remaining, role)
        try:
            Deployment.model_validate(_knowable(part.values))
        except ValidationError as error:
            for path in refused_paths(error):
                own = path if role is None else _existing((ROLES, role, *path), left)
                found = _existing(own, left)
                if len(found) > (0 if role is None else 2):
                    holder: Any = left
                    for key in found[:-1]:
                        holder = holder[key]
                    del holder[found[-1]]
    return left


def _existing(path: KeyPath, values: object) -> KeyPath:
    while path and not exists(values, path):
        path = path[:-1]
    return path


def validate(composition: Composition) -> Recipe:
    """Return a composition and its roles as a validated recipe. Raises InputError."""
    names = role_names(composition.values)
    if not names:
        return _validated(composition)
    roles = [(name, of_role(composition, name)) for name in names]
    found: list[Problem] = [*invented(composition)]
    complete: Recipe | None = None
    try:
        complete = _validated(shared(composition))
    except InputError as error:
        found += error.problems
    contexts = server_context(composition, roles)
    parts: list[Recipe] = []
    for name, part in roles:
        try:
            validated = _validated(part, composition, name)
            parts.append(replace(validated, server_context=contexts[name]))
        except InputError as error:
            known = {(problem.place, problem.message) for problem in found}
            found += [p for p in error.problems if (p.place, p.message) not in known]
    if found or complete is None:
        raise InputError(sorted(dict.fromkeys(found), key=lambda problem: problem.position))
    return replace(complete, parts=tuple(parts))


def _validated(
    composition: Composition, parent: Composition | None = None, role: str | None = None
) -> Recipe:
    values = {"name": composition.name, **composition.values}
    known = _knowable(values)
    plain = cast("Deployment | None", plain_deployment(known))
    deployment = plain or _by_schema(known, composition, parent, role)
    env = restored(deployment.engine.env, _below(values, "engine", "env"))
    engine = deployment.engine.model_copy(update={"env": env})
    args = restored(deployment.args, values.get("args"))
    deployment = deployment.model_copy(update={"args": args, "engine": engine})
    start, find = Place(str(composition.path)), composition.provenance.find
    unset = tuple(
        Unset(".".join(map(str, path)), variable, find(path) or start)
        for path, variable in unset_places(values)
    )
    recipe = Recipe(deployment, composition.path, composition.provenance, unset)
    python = deployment.engine.python
    if python is not None and recipe.place("engine", "python").path == COMMAND_LINE:
        from speclaunch.engine import trust  # noqa: PLC0415  rarely needed

        trust(python)  # set by the user
    return recipe


def _by_schema(
    known: dict[str, Any], composition: Composition, parent: Composition | None, role: str | None
) -> Deployment:
    from pydantic import ValidationError  # noqa: PLC0415 - slow to import, and seldom needed

    from speclaunch.deployments.recipe.schema import Deployment, problems  # noqa: PLC0415

    try:
        return Deployment.model_validate(known)
    except ValidationError as error:
        own = None if parent is None or role is None else (parent.values, role)
        found = problems(error, composition, own)
        raise InputError(sorted(found, key=lambda problem: problem.position)) from None


def _knowable(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that the schema can check, without those that need unset variables.

    The schema's defaults replace the removed values. Server arguments and engine variables
    always remain.
    """
    known = {"name": "unknown", **without_unset(values)}
    if "args" in values:
        known["args"] = values["args"]
    env = _below(values, "engine", "env")
    if env is not None and isinstance(known.get("engine"), dict):
        known["engine"]["env"] = env
    return known


def _below(values: Any, *keys: str) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def changed_args(args: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `args` with `changes`, which replace the same arguments under any name."""
    found = dict(args)
    for name, value in changes.items():
        for other in [key for key in found if canonical(key) == canonical(name)]:
            del found[other]
        found[name] = value
    return found


OF_A_HOST = {"node_rank": "args.node_rank=0", "dist_init_addr": "args.dist_init_addr=HOST:20000"}
"""Arguments that differ between hosts or starts, each with an example override."""


def select_role(recipe: Recipe, role: str | None, why: str = "one role is needed") -> Recipe:
    """Return the role named `role`; by default the only role, or the recipe if it has none.

    Raises InputError for an unknown role, or with `why` if several exist and none is named.
    """
    if role is None and len(recipe.parts) < 2:
        return recipe.roles[0]
    roles = {str(part.role): part for part in recipe.parts}
    named = recipe.deployment.name
    if role is None:
        message = f"{named} has several roles, but {why}: {', '.join(roles)}"
        raise InputError(message, help=f"choose a role, such as --role {next(iter(roles))}")
    if role in roles:
        return roles[role]
    place = Place(COMMAND_LINE, text=f"--role {role}")
    if not roles:
        raise InputError(f"{named} has no roles", place, "remove --role")
    near = suggest(role, roles)
    listed = f"the roles are {', '.join(roles)}"
    help_ = f"{near} {listed}" if near else listed
    raise InputError(f"{named} has no role {role!r}", place, help_)


def require_host(recipe: Recipe) -> None:
    """Raise InputError if a server has several hosts, but this host's rank or rank 0's address is
    not set."""
    args = recipe.deployment.args
    nodes = value_of(args, "nnodes")
    nodes = int(nodes) if isinstance(nodes, str) and nodes.isdecimal() else nodes
    if not isinstance(nodes, int) or nodes < 2 or value_of(args, "use_ray"):
        return
    found = {name: value_of(args, name) for name in OF_A_HOST}
    missing = [name for name, value in found.items() if value is None or unset_in(value)]
    if missing:
        names = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
        message = f"{recipe.deployment.name} runs on {nodes} hosts, but {names} not set"
        help_ = (
            f"start it on each host with {' '.join(OF_A_HOST[name] for name in missing)} "
            f"(rank 0 to {nodes - 1}; the address is that of rank 0)"
        )
        raise InputError(message, recipe.place("args", "nnodes"), help_)


def fit_limits(recovery: Recovery) -> FitLimits:
    """Return the limits that `recovery` sets for a fit search; the defaults if it is off."""
    if recovery.policy is RecoveryPolicy.OFF:
        return DEFAULT_LIMITS
    floors = {name: getattr(recovery.floors, name) for name in FitFloors.__struct_fields__}
    return FitLimits(
        recovery.order,
        FitFloors(**floors),
        recovery.limits.mem_fraction_static,
        recovery.objective.tokens_within,
    )
