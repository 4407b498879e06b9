"""Reads the case files of rules: cases/<CODE>.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.rules.examine import BUG, check_rules, check_together
from speclaunch.checks.rules.interface import Rule, RuleResults
from speclaunch.core.errors import Place
from speclaunch.deployments.recipe.load import Recipe
from speclaunch.deployments.recipe.lock import Lock, LockedEngine, LockedImage
from speclaunch.deployments.recipe.lock_file import recipe_differences
from speclaunch.deployments.recipe.schema import Deployment, Engine
from speclaunch.deployments.recipe.source import KeyPath, RecipeProvenance
from speclaunch.deployments.sources.files import read_shell, read_text
from speclaunch.deployments.sources.requests import from_invocation, from_recipe
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import Hardware, Vendor
from speclaunch.engine.facts.known_models import ModelPair
from speclaunch.engine.facts.tensors import Content, Headers
from speclaunch.engine.facts.weight_files import TensorHeader
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.request import (
    Group,
    Pod,
    Request,
    Router,
    ServerContext,
    Service,
    Setting,
    Upstream,
)
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.command import FromEnvironment, VariableReference, render_args
from tests.support import TESTS
from tests.support.checks.rules.manifest import LOADER, manifest

CASES = TESTS / "checks" / "rules" / "cases"


class Case(Struct, frozen=True):
    """One case of a rule. Its name says what is expected: `fail_…`, `pass_…`, `fixed…`, or
    `unknown_…` (the rule cannot tell, and says nothing)."""

    code: str
    name: str
    engine: str
    args: Mapping[str, Any]
    argv: str | None
    env: Mapping[str, str]
    facts: Facts
    expect: Mapping[str, Any]
    slime: str | None = None
    """slime's own command line, instead of `args` or `argv`."""
    together: tuple[Mapping[str, Any], ...] = ()
    """Deployments that are looked at together: `path`, `args` or `argv`, `env` of each, and what
    `stands` says of each besides."""
    stands: Mapping[str, Any] | None = None
    """What stands around it, or around all of `together`: see `server_context`."""
    text: str | None = None
    """A manifest, all of whose servers are looked at, each by itself and together: `manifest` of
    the case names one of tests/checks/rules/manifests, `set` says what is changed in it (`manifest.py`);
    `text` is one by itself."""
    lock: Mapping[str, Any] | None = None
    """The lock of a recipe: its `args`, `env`, `engine`, `steps` and `image`."""

    @property
    def fails(self) -> bool:
        return self.name.startswith("fail")


def checkpoint(fields: Mapping[str, Any], name: str) -> Checkpoint:
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    if "path" in values:
        values["path"] = Path(values["path"])
    if "tensors" in values:
        values["tensors"] = TensorsOfCase(values["tensors"])
    return Checkpoint(**{"name": name, **values})


class TensorsOfCase:
    """Tensors as a case writes them: `names` with type and shape (`F32 64x192`); `zero`, `nan`
    and `sampled` those of which that is so, `integers` the numbers of some, `zero_rows` rows."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        known = {"names", "zero", "nan", "sampled", "integers", "zero_rows", "broken", "unread"}
        known |= {"fingerprints"}
        assert not said.keys() - known, said.keys() - known
        self._said = said
        tensors = {name: self._header(text) for name, text in said.get("names", {}).items()}
        self.headers = Headers(tensors, tuple(said.get("broken", ())), said.get("unread"))

    @staticmethod
    def _header(text: str) -> TensorHeader:
        dtype, _, shape = text.partition(" ")
        return TensorHeader(dtype, tuple(int(one) for one in shape.split("x") if one), 0, 0)

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        zero, nan, sampled = (self._said.get(key, ()) for key in ("zero", "nan", "sampled"))
        return {one: Content(one in zero, one in nan, one not in sampled) for one in names}

    def integers(self, name: str) -> tuple[int, ...] | None:
        found = self._said.get("integers", {}).get(name)
        return None if found is None else tuple(found)

    def fingerprint(self, name: str) -> bytes | None:
        found = self._said.get("fingerprints", {}).get(name)
        return None if found is None else str(found).encode()

    def row(self, name: str, number: int) -> Content | None:
        shape = self.headers.tensors[name].shape
        assert number < shape[0]
        return Content(number in self._said.get("zero_rows", ()), False, True)


def hardware(said: Any) -> Hardware | None:
    if said is None:
        return None
    if isinstance(said, str):
        from speclaunch.engine.facts.hardware import declare

        return declare(said)
    return Hardware(**{"name": "test", **said, "vendor": Vendor(said["vendor"])})


@cache
def load_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a file; read once, as several test modules ask for them when they are imported."""
    text = yaml.load(path.read_text(), LOADER)
    return tuple(_case(text["rule"], name, said) for name, said in text["cases"].items())


def _case(code: str, name: str, said: Mapping[str, Any]) -> Case:
    known = {"engine", "args", "argv", "env", "target", "draft", "hardware", "expect"}
    known |= {"lock", "slime", "together", "made_for_target", "stands", "manifest", "set", "text"}
    assert not said.keys() - known, f"{code} {name}: {said.keys() - known}"
    assert re.match(r"(fail|pass|fixed|unknown)", name), f"{code}: {name}"
    args = {name: _value(value) for name, value in said.get("args", {}).items()}
    facts = Facts(
        checkpoint(said["target"], str(args.get("model_path"))) if "target" in said else None,
        checkpoint(said["draft"], str(args.get("speculative_draft_model_path")))
        if "draft" in said
        else None,
        hardware(said.get("hardware")),
        made_for_target=tuple(
            ModelPair(**{"target": str(args.get("model_path")), **one})
            for one in said.get("made_for_target", ())
        ),
    )
    env = {key: str(value) for key, value in said.get("env", {}).items()}
    return Case(
        code,
        name,
        said["engine"],
        args,
        said.get("argv"),
        env,
        facts,
        said.get("expect", {}),
        said.get("slime"),
        tuple(said.get("together", ())),
        said.get("stands"),
        manifest(said["manifest"], said.get("set", {})) if "manifest" in said else said.get("text"),
        said.get("lock"),
    )


def server_context(said: Mapping[str, Any]) -> ServerContext:
    """What stands around a command: `role`, `part`, `nodes`, `gpus_per_node`, `limits`; and of its
    deployment `name`, `platform`, `services` (names), `router` (`program`, `options`, `upstreams`
    with `role`, `port`, `bootstrap`). `{unknown: TEXT}` is a value that nobody knows."""
    known = {"role", "part", "nodes", "gpus_per_node", "limits", "requests", "name", "platform"}
    known |= {"services", "router"}
    assert not said.keys() - known, said.keys() - known
    routers = (_router(said["router"]),) if "router" in said else ()
    place = Place("group.yaml")
    services = tuple(Service(name, place, {}) for name in said.get("services", ()))
    group = Group(said.get("name", "g"), said.get("platform", "p"), place, routers, services)
    amounts = {
        key: {name: _setting(value, 40) for name, value in said.get(key, {}).items()}
        for key in ("limits", "requests")
    }
    return ServerContext(
        group,
        said.get("role", "server"),
        place,
        said.get("part"),
        nodes=_optional(said.get("nodes"), 20),
        gpus_per_node=_optional(said.get("gpus_per_node"), 21),
        pod=Pod(**amounts),
    )


def _router(said: Mapping[str, Any]) -> Router:
    options = {name: _setting(value, 31) for name, value in said.get("options", {}).items()}
    upstreams = tuple(
        Upstream(
            one["role"],
            None,
            _optional(one.get("port"), 32),
            Place("group.yaml", 33),
            _optional(one.get("bootstrap"), 34),
        )
        for one in said.get("upstreams", ())
    )
    program = said.get("program", "sglang_router")
    return Router("router", program, Place("group.yaml", 30), upstreams, options)


def _optional(value: Any, line: int) -> Setting | None:
    return None if value is None else _setting(value, line)


def _setting(value: Any, line: int) -> Setting:
    is_known = not (isinstance(value, dict) and "unknown" in value)
    return Setting(value if is_known else value["unknown"], Place("group.yaml", line), is_known)


def _standing(request: Request, said: Mapping[str, Any] | None) -> Request:
    return request if said is None else replace(request, server_context=server_context(said))


def _value(said: Any) -> Any:
    """`{env: NAME, is: VALUE, default: TEXT}` is `${oc.env:NAME,TEXT}` where NAME is VALUE."""
    if not isinstance(said, dict) or "env" not in said:
        return said
    default = (said["default"],) if "default" in said else None
    unset = () if "is" in said else (said["env"],)
    return FromEnvironment(
        said.get("is", said["env"]), (VariableReference(said["env"], default),), unset
    )


def request_of(
    args: Mapping[str, Any], argv: str | None, env: Mapping[str, str], version: str
) -> Request:
    """`args` are a recipe's; `argv` is text of a command, in which `$NAME` cannot be evaluated."""
    catalogue = load(version)
    if argv is not None:
        before = "".join(f"{key}={value} " for key, value in env.items())
        text = f"{before}python3 -m sglang.launch_server {argv}\n"
        (invocation,) = read_shell(text, "case.sh").invocations
        return from_invocation(invocation, "case", catalogue)
    return from_recipe(_recipe(args, env), render_args(args, env, catalogue), catalogue)


def request_of_slime(options: str, version: str) -> Request:
    """What slime's engines are asked, by options in an array."""
    text = f"ARGS=(\n{options}\n)\npython3 train.py ${{ARGS[@]}}\n"
    (invocation,) = read_shell(text, "case.sh").invocations
    return from_invocation(invocation, "case", load(version))


def _with_lock(request: Request, case: Case) -> Request:
    """A request of a recipe with the differences from its lock."""
    if case.lock is None:
        return request
    said = {"args": case.args, "env": case.env, "engine": case.engine, **case.lock}
    assert not said.keys() - {"args", "env", "engine", "steps", "image"}, said.keys()
    args = {name: _value(value) for name, value in said["args"].items()}
    locked = _recipe(args, said["env"], "case.lock.yaml")
    record = Lock(
        recipe="case.yaml",
        steps=said.get("steps", {}),
        engine=LockedEngine(said["engine"]),
        image=LockedImage(said["image"]) if "image" in said else None,
    )
    deployment = locked.deployment.model_copy(update={"lock": record})
    lock = replace(locked, deployment=deployment)
    own = _recipe(case.args, case.env)
    found = recipe_differences(own, lock)
    return replace(request, lock_differences=tuple(one.problem for one in found))


def together(case: Case) -> list[Plan]:
    """The plans of deployments that are looked at together."""
    catalogue = load(case.engine)
    plans = []
    for one in case.together:
        env = {key: str(value) for key, value in one.get("env", {}).items()}
        if "argv" in one:
            text = f"python3 -m sglang.launch_server {one['argv']}\n"
            (invocation,) = read_shell(text, one["path"]).invocations
            line = replace(invocation.place, line=one.get("line", 1))
            request = from_invocation(replace(invocation, place=line), "case", catalogue)
        else:
            recipe = _recipe(one["args"], env, one["path"])
            request = from_recipe(recipe, render_args(one["args"], env, catalogue), catalogue)
        around = None if case.stands is None else {**case.stands, **one.get("stands", {})}
        plans.append(resolve(_standing(request, around), case.facts))
    return plans


def _recipe(args: Mapping[str, Any], env: Mapping[str, str], path: str = "case.yaml") -> Recipe:
    """A recipe file of one line a value."""
    keys: list[KeyPath] = [("args", name) for name in args]
    keys += [("engine", "env", name) for name in env]
    places = {key: Place(path, line, 3) for line, key in enumerate(keys, 2)}
    deployment = Deployment(name="case", args=dict(args), engine=Engine(env=dict(env)))
    deployment = deployment.model_copy(update={"args": dict(args)})
    return Recipe(deployment, Path(path), RecipeProvenance(places))


def plan_of(case: Case) -> Plan:
    if case.slime is not None:
        return resolve(request_of_slime(case.slime, case.engine), case.facts)
    request = request_of(case.args, case.argv, case.env, case.engine)
    return resolve(_with_lock(_standing(request, case.stands), case), case.facts)


def plans_in_manifest(text: str, case: Case) -> list[Plan]:
    """The plans of all servers of a manifest."""
    reading = read_text(text, "case.yaml")
    assert reading.invocations, f"{case.code} {case.name}: {reading.unread}"
    catalogue = load(case.engine)
    return [
        resolve(from_invocation(one, one.name or "case", catalogue), case.facts)
        for one in reading.invocations
    ]


def plans_of(case: Case) -> list[Plan]:
    """What a rule is asked about: no rule has a part in it."""
    if case.text is not None:
        return plans_in_manifest(case.text, case)
    return together(case) if case.together else [plan_of(case)]


def verdict(rule: Rule, case: Case, plans: Sequence[Plan] | None = None) -> RuleResults:
    plans = plans_of(case) if plans is None else plans
    if case.text is not None:
        alone = [check_rules(plan, [rule]) for plan in plans]
        found = [finding for _, finding in check_together(plans, [rule])]
        return RuleResults(
            (*(finding for one in alone for finding in one.findings), *found),
            tuple(reason for one in alone for reason in one.skipped),
        )
    if case.together:
        return RuleResults(tuple(finding for _, finding in check_together(plans, [rule])))
    return check_rules(plans[0], [rule])


def complaint(rule: Rule, case: Case, plans: Sequence[Plan] | None = None) -> str | None:
    """What is wrong with what the rule says of a case, if anything; `plans` are the case's."""
    plans = plans_of(case) if plans is None else plans
    said = verdict(rule, case, plans)
    messages = [f.message for f in said.findings]
    stumbled = [one.reason for one in said.skipped if one.reason.startswith(BUG)]
    if stumbled:
        return f"the rule stumbled: {stumbled}"
    if case.name.startswith("unknown"):
        return None if said.skipped and not messages else f"it could tell: {messages}"
    if not case.fails:
        return f"unexpected: {messages or said.skipped}" if messages or said.skipped else None
    if not messages:
        return f"nothing was found ({said.skipped})"
    told = {rule.severity, *rule.also}
    if any(finding.severity not in told for finding in said.findings):
        return f"its page does not tell severity {said.findings[0].severity}"
    expect = case.expect
    known = {"at", "message", "why", "fix", "edits", "rename", "severity", "count", "lacks"}
    known |= {"line", "also", "places"}
    assert not expect.keys() - known, expect
    first = said.findings[0]
    if "message" in expect and expect["message"] not in first.message:
        return f"message {first.message!r} lacks {expect['message']!r}"
    if "why" in expect and expect["why"] not in first.why:
        return f"why {first.why!r} lacks {expect['why']!r}"
    if "fix" in expect and (first.fix is None or expect["fix"] not in first.fix.text):
        return f"fix {first.fix} lacks {expect['fix']!r}"
    if "lacks" in expect:
        words = f"{first.message} {first.why} {first.fix.text if first.fix else ''}"
        if expect["lacks"] in words:
            return f"it says {expect['lacks']!r}: {words!r}"
    if "rename" in expect:
        renamed = None if first.fix is None or first.fix.rename is None else list(first.fix.rename)
        if renamed != expect["rename"]:
            return f"its fix renames {renamed}"
    if "edits" in expect:
        edits = None if first.fix is None else {**first.fix.set, **first.fix.env}
        if edits != expect["edits"]:
            return f"its fix sets {edits}"
    if "severity" in expect and first.severity != expect["severity"]:
        return f"severity {first.severity}"
    if "count" in expect and len(messages) != expect["count"]:
        return f"{len(messages)} findings: {messages}"
    if case.text is not None:
        rows = case.text.splitlines()
        lines = [rows[place.line - 1] for place in (first.place, *first.others)]
        if expect.get("line", "") not in lines[0]:
            return f"its line is {lines[0]!r}"
        for text in expect.get("also", ()):
            if not any(text in line for line in lines[1:]):
                return f"its other lines are {lines[1:]}, none with {text!r}"
    if "places" in expect:
        places = [f"{one.path}:{one.line}" for one in (first.place, *first.others)]
        if places != expect["places"]:
            return f"places {places}"
    if "at" in expect:
        plan = plans[0]
        if first.place != plan.place(expect["at"]) or first.place == plan.request.place:
            return f"place {first.place}, not that of {expect['at']}"
    return None
