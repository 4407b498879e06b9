"""Reads calls: the engine's own functions are read where they are called."""

from __future__ import annotations

import ast
from typing import Any

from refusal_reading import facts
from refusal_reading.builtin_calls import BuiltinCalls
from refusal_reading.sources import ClassRef, FunctionRef, Module, ModuleRef, resolve
from refusal_reading.values import (
    Args,
    Config,
    Mapped,
    Member,
    Method,
    Model,
    Overrides,
    Platform,
    Several,
    State,
    View,
    join,
)

DEPTH = 14
RAISED = -1
"""Instead of the condition under which a block is left at its end: it always raises."""


class Calls(BuiltinCalls):
    """What a call stands for, and what it does to the state."""

    def _on_call(self, one: ast.Call, state: State) -> Any:
        name = one.func.id if isinstance(one.func, ast.Name) else ""
        if name in ("any", "all") and name not in state.names:
            return self._quantified(name, one, state)
        function = self.evaluate(one.func, state)
        args: list[Any] = []
        for arg in one.args:
            if isinstance(arg, ast.Starred):
                parts = self.several(self.evaluate(arg.value, state))
                if parts is None:
                    return self.unknown("starred arguments")
                args += [value for _, value in parts]
            else:
                args.append(self.evaluate(arg, state))
        named: dict[str, Any] = {}
        for keyword in one.keywords:
            value = self.evaluate(keyword.value, state)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, Mapped):
                named |= dict(value.entries)
            else:
                named["**"] = value
        return self.called(function, args, named, state)

    def called(self, function: Any, args: list[Any], named: dict[str, Any], state: State) -> Any:
        """The result of a call."""
        self.raises = False
        before = sum(self.unread.values())
        found = self._called(function, args, named, state)
        unread = isinstance(found, int) and self.store.nodes[found][0] == "u"
        name = getattr(function, "name", "").rpartition(".")[2]
        if (
            unread
            and sum(self.unread.values()) == before + 1
            and any(isinstance(one, Args) for one in (*args, *named.values()))
            and name not in facts.HARMLESS
            and not name.startswith(("is_", "get_", "supports", "has_", "should_"))
        ):
            self.forget_all(f"what {name}() writes", state)
        return found

    def _called(self, function: Any, args: list[Any], named: dict[str, Any], state: State) -> Any:
        if isinstance(function, FunctionRef):
            return self._function(function, args, named, state)
        if isinstance(function, Method):
            return self._method(function, args, named, state)
        if isinstance(function, ModuleRef):
            return self._foreign(function.name, args, named, state)
        if isinstance(function, ClassRef):
            return self._class(function, args)
        return self.unknown("a call of something unknown")

    # functions of the release ----------------------------------------------------------------

    def _function(
        self, ref: FunctionRef, args: list[Any], named: dict[str, Any], state: State
    ) -> Any:
        name = ref.name
        if name in facts.VIEWS:
            return View()
        if name in facts.SNAPSHOTS:
            return self._snapshot(state)
        if name in facts.MODEL_CONFIG:
            return Model()
        if name == "get_config" and args and self._names_draft(args[0]):
            return Config(draft=True)
        if name == "from_string" and ref.owner is not None and args:
            return self._algorithm(ref.owner, self.node(args[-1]))
        if name == "get_platform":
            return Platform()
        if name in facts.DECLARE:
            return self._declared(named, state)
        if name == "run_hook":
            return self.called(args[0], args[1:], named, state)
        if name == "run_post_process_pass":
            return self._post_process(args[1], state)
        if name == "materialize_declarations":
            return self.materialize(state)
        if name == "collect_model_override_declarations":
            return self._model_overrides(ref.module, args, state)
        if name == "get_bool_env_var":
            return self._bool_variable(args, named)
        if name == "record_of":
            return Args()
        if name in ("validate_declarations", "record_foreign_defaults"):
            return self.store.none
        if not args and not named and name in facts.PLATFORM:
            return self.platform(name)
        if name == "parse_connector_type" and args:
            written = self.raw("model_path")  # what replaces a path is a directory
            remote = self.store.make("startswith", written, self.store.const("instance://"))
            return self.store.make("?", remote, self.store.unknown(""), self.store.const(""))
        if name == "get_device_capability":
            return self._capability()
        if name in facts.MEMORY:
            return self.store.leaf("p", "memory_mib")
        if name in facts.UNREAD:
            return self.unknown(f"{name}()")
        return self.inline(ref, args, named, state)

    def _names_draft(self, found: Any) -> bool:
        draft = self.raw("speculative_draft_model_path")
        return isinstance(found, int) and draft in self.store.reached(found)

    def _algorithm(self, owner: ClassRef, name: int) -> Member:
        """`SpeculativeAlgorithm.from_string`: what it refuses is not read."""
        make, const = self.store.make, self.store.const
        spelled = make("+", const(f"{owner.name}."), make("upper", name))
        nothing = const(f"{owner.name}.NONE")
        return Member(owner, make("?", make("none", name), nothing, spelled))

    def _capability(self) -> Several:
        return Several((self.store.leaf("p", "device_major"), self.store.leaf("p", "device_minor")))

    def inline(self, ref: FunctionRef, args: list[Any], named: dict[str, Any], state: State) -> Any:
        """Read a function where it is called; its writes are those of the state."""
        node = ref.node
        if isinstance(node, ast.Lambda):
            body: Any = None
        else:
            body = node.body
            steps = sum(isinstance(x, ast.stmt) for x in ast.walk(node))
            ours = ref.module.name.startswith(("sglang.srt.server_args", "sglang.srt.arg_groups"))
            if steps > (1200 if ours else 60):
                return self.unknown(f"{ref.name}() is long")
            if any(isinstance(x, ast.Yield | ast.YieldFrom | ast.Await) for x in ast.walk(node)):
                return self.unknown(f"{ref.name}() is no plain function")
        if len(self.stack) >= DEPTH or any(node is one for one in self.stack):
            return self.unknown(f"{ref.name}() is too deep")
        names = dict(state.names) if ref.name not in ref.module.names else {}
        names.pop("return", None)
        bound = self._bound(ref, args, named)
        if bound is None:
            return self.unknown(f"the arguments of {ref.name}()")
        inner = State(state.fields, {**names, **bound})
        self.stack.append(node)
        self.modules.append(ref.module)
        try:
            if body is None:
                return self.evaluate(node.body, inner)
            live = self.block(body, inner)
        finally:
            self.stack.pop()
            self.modules.pop()
        if inner.fields is not state.fields:
            state.fields.clear()
            state.fields.update(inner.fields)
        self.raises = live == RAISED
        return self._filled(inner.names.get("return", self.store.none))

    def _filled(self, found: Any) -> Any:
        if isinstance(found, int):
            return self.store.filled(found, self.store.none)
        if isinstance(found, Several):
            return Several(tuple(self._filled(one) for one in found.entries))
        return found

    def _bound(
        self, ref: FunctionRef, args: list[Any], named: dict[str, Any]
    ) -> dict[str, Any] | None:
        spec = ref.node.args
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        keyword_only = [one.arg for one in spec.kwonlyargs]
        if len(args) > len(names) and spec.vararg is None:
            return None
        bound: dict[str, Any] = dict(zip(names, args, strict=False))
        if spec.vararg is not None:
            bound[spec.vararg.arg] = Several(tuple(args[len(names) :]))
        extra = {key: value for key, value in named.items() if key not in names + keyword_only}
        if extra and spec.kwarg is None:
            return None
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = Mapped(tuple(extra.items()))
        bound |= {key: value for key, value in named.items() if key in names + keyword_only}
        defaults = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
        defaults |= {
            key: value
            for key, value in zip(keyword_only, spec.kw_defaults, strict=True)
            if value is not None
        }
        for name in names + keyword_only:
            if name not in bound:
                if name not in defaults:
                    return None
                self.modules.append(ref.module)
                bound[name] = self.evaluate(defaults[name], State())
                self.modules.pop()
        return bound

    def _snapshot(self, state: State) -> View:
        overlay = {key: value for key, value in state.fields.items() if key.startswith("O:")}
        return View(tuple(sorted(overlay.items())))

    def _declared(self, named: dict[str, Any], state: State) -> Any:
        named = {key: value for key, value in named.items() if key != "source"}
        unread = named.pop("**", None)
        if unread is not None:
            self.forget_all("declared fields that are not named", state)
        self.declare(named, state)
        return self.store.none

    def _post_process(self, function: Any, state: State) -> Any:
        found = self.called(function, [self._snapshot(state)], {}, state)
        if isinstance(found, Mapped):
            self.declare(dict(found.entries), state)
        elif found in (self.store.none, self.store.missing):
            pass
        elif isinstance(function, FunctionRef):
            self.forget_named(function, state)
        else:
            self.forget_all("what an unknown pass declares", state)
        return self.store.none

    def forget_named(self, function: FunctionRef, state: State) -> None:
        """Every field that a function or its helpers spell out is unknown from here on."""
        unknown = self.unknown(f"what {function.name}() declares")
        for name in self._spelled(function, 0) & self.field_names().keys():
            state.fields[f"O:{name}"] = unknown

    def _spelled(self, function: FunctionRef, depth: int) -> set[str]:
        found: set[str] = set()
        for one in ast.walk(function.node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                found.add(one.value)
            elif isinstance(one, ast.keyword) and one.arg:
                found.add(one.arg)
            elif isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and depth < 4:
                helper = resolve(function.module, one.func.id)
                if isinstance(helper, FunctionRef) and helper.node is not function.node:
                    found |= self._spelled(helper, depth + 1)
        return found

    def forget_all(self, why: str, state: State) -> None:
        """Every field is unknown from here on."""
        unknown = self.unknown(why)
        for name in self.field_names():
            state.fields[f"F:{name}"] = unknown
            state.fields.pop(f"O:{name}", None)

    def _model_overrides(self, module: Module, args: list[Any], state: State) -> Overrides:
        """What the providers for an architecture declare: each under its condition."""
        architecture = args[0]
        base = self.release.module("sglang.srt.arg_groups.model_override_base") or module
        merged: list[tuple[int, Mapped]] = []
        table = base.names.get("MODEL_OVERRIDES")
        constants = self.constant(base, table) if table is not None else None
        for key, value in constants.entries if isinstance(constants, Mapped) else ():
            when = self.store.make("==", self.node(architecture), self.store.const(key))
            merged.append((when, value))
        for owner, node, when in self._providers(module, architecture, state):
            if when == self.store.false:
                continue
            self.path.append(when)
            found = self.inline(FunctionRef(owner, node), [Args(), Config()], {}, state)
            self.path.pop()
            if isinstance(found, Mapped):
                merged.append((when, found))
            elif found not in (self.store.none, self.store.missing):
                before = state.copy()
                self.forget_named(FunctionRef(owner, node), state)
                state.become(join(self.store, when, state, before, self.raw))
        return Overrides(tuple(merged))

    def _providers(self, module: Module, architecture: Any, state: State) -> Any:
        package = self.release.package / "srt" / "arg_groups" / "model_overrides"
        modules = [module]
        for path in sorted(package.glob("*.py")):
            if path.stem != "__init__":
                found = self.release.module(f"sglang.srt.arg_groups.model_overrides.{path.stem}")
                modules += [found] if found is not None else []
        keyed, predicated = [], []
        for owner in modules:
            for node in owner.tree.body:
                for decorator in getattr(node, "decorator_list", ()):
                    if not isinstance(decorator, ast.Call):
                        continue
                    name = ast.unparse(decorator.func).rpartition(".")[2]
                    self.modules.append(owner)
                    if name in ("_register_for", "register_model_override"):
                        held: list[int] = []
                        for arg in decorator.args:
                            inner = arg.value if isinstance(arg, ast.Starred) else arg
                            value = self.evaluate(inner, State())
                            parts = self.several(value) if isinstance(arg, ast.Starred) else None
                            held += [v for _, v in parts] if parts else [self.node(value)]
                        options = [
                            self.store.make("==", self.node(architecture), one) for one in held
                        ]
                        keyed.append((owner, node, self._among(architecture, held, options)))
                    elif name == "register_model_override_predicate":
                        predicate = self.evaluate(decorator.args[0], State())
                        when = self.truth_of(self.called(predicate, [architecture], {}, state))
                        predicated.append((owner, node, when))
                    self.modules.pop()
        return [*keyed, *predicated]

    def _among(self, architecture: Any, held: list[int], options: list[int]) -> int:
        if all(self.store.is_const(one) for one in held):
            values = self.store.const([self.store.value(one) for one in held])
            return int(self.store.make("in", self.node(architecture), values))
        return int(self.store.disjunction(options))

    def declare_overrides(self, found: Overrides, state: State) -> None:
        """Stash what the providers declared, the last writer last."""
        for when, entries in found.entries:
            after = state.copy()
            self.declare(dict(entries.entries), after)
            state.become(join(self.store, when, after, state.copy(), self.raw))

    # methods ---------------------------------------------------------------------------------
