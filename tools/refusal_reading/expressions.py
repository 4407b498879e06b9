"""Reads expressions: into nodes where they are values, into markers where they are objects."""

from __future__ import annotations

import ast
from typing import Any

from refusal_reading import facts
from refusal_reading.sources import ClassRef, Function, FunctionRef, Module, ModuleRef, resolve
from refusal_reading.values import (
    Args,
    Config,
    Environ,
    Envs,
    Items,
    Mapped,
    Member,
    Method,
    Model,
    Platform,
    Several,
    State,
    Variable,
    View,
)

_ENV_KINDS = {"EnvBool": "bool", "EnvInt": "int", "EnvFloat": "float", "EnvStr": "str"}


class Expressions:
    """What an expression stands for in a state."""

    store: Any
    release: Any
    server_args: Any
    record: Any
    path: list[int]
    stack: list[Any]
    modules: list[Module]

    def evaluate(self, one: ast.expr, state: State) -> Any:
        """A node's number, or a marker."""
        handler = getattr(self, f"_on_{type(one).__name__.lower()}", None)
        if handler is None:
            return self.unknown(f"expression {type(one).__name__}")
        return handler(one, state)

    def truth(self, one: ast.expr, state: State) -> int:
        """A node whose truth is that of the expression."""
        return self.truth_of(self.evaluate(one, state))

    def truth_of(self, found: Any) -> int:
        """A node for the truth of what was found."""
        if isinstance(found, int):
            return found
        if isinstance(found, Member):
            return int(self.store.make("not", self.store.make("none", found.node)))
        if isinstance(found, Items):
            return int(self.store.disjunction([condition for condition, _ in found.entries]))
        if isinstance(found, Mapped):
            return int(
                self.store.const(bool(found.entries))
                if not any(self._maybe(v) for _, v in found.entries)
                else self.unknown("the truth of a dict")
            )
        if isinstance(found, Several):
            return int(self.store.const(bool(found.entries)))
        if isinstance(found, Args | View | Model | Config | Platform | Envs):
            return int(self.store.true)
        return int(self.unknown("the truth of an object"))

    def _maybe(self, value: Any) -> bool:
        return isinstance(value, int) and self.store.has_missing(value)

    def node(self, found: Any) -> int:
        """What was found as a value; unknown where it is an object."""
        if isinstance(found, int):
            return found
        if isinstance(found, Member):
            return found.node
        if isinstance(found, Several | Items):
            parts = self.several(found)
            if parts is not None and all(c == self.store.true for c, _ in parts):
                return int(self.store.make("list", *(self.node(value) for _, value in parts)))
        return int(self.unknown("an object as a value"))

    def several(self, found: Any) -> list[tuple[int, Any]] | None:
        """The items of something that can be gone over, each with when it is there."""
        if isinstance(found, Items):
            return list(found.entries)
        if isinstance(found, Several):
            return [(self.store.true, one) for one in found.entries]
        if isinstance(found, int):
            node = self.store.nodes[found]
            if node[0] == "k" and isinstance(node[1], list):
                return [(self.store.true, self.store.const(one)) for one in node[1]]
            if node[0] == "list":
                return [(self.store.true, one) for one in node[1:]]
        return None

    def constant(self, module: Module, statement: Any) -> Any:
        """The value of an assignment at the top level of a module or a class."""
        value = getattr(statement, "value", None)
        if value is None or len(self.modules) > 40:
            return self.unknown("a name without a value")
        self.modules.append(module)
        rows, path = getattr(self, "rows", []), self.path
        self.rows, self.path = [], []
        try:
            return self.evaluate(value, State())
        finally:
            self.rows, self.path = rows, path
            self.modules.pop()

    # names and attributes --------------------------------------------------------------------

    def _on_constant(self, one: ast.Constant, state: State) -> Any:
        if isinstance(one.value, str | int | float | bool | None):
            return self.store.const(one.value)
        return self.unknown("a constant")

    def _on_name(self, one: ast.Name, state: State) -> Any:
        if one.id in state.names:
            found = state.names[one.id]
            return self.unknown("a name without a value") if found is None else found
        return self.global_name(one.id)

    def global_name(self, name: str) -> Any:
        """What a name of the current module stands for."""
        found = resolve(self.modules[-1], name)
        if isinstance(found, tuple):
            if name == "envs":
                return Envs()
            return self.constant(*found)
        if found is not None:
            return found
        return ModuleRef(name, None)

    def _on_attribute(self, one: ast.Attribute, state: State) -> Any:
        return self.attribute(self.evaluate(one.value, state), one.attr, state)

    def attribute(self, owner: Any, name: str, state: State, default: Any = None) -> Any:
        """An attribute of whatever it is; `default` where getattr() has one."""
        if isinstance(owner, Args | View):
            return self.of_record(owner, name, state, default)
        if isinstance(owner, Config):
            return self.of_config(owner, name)
        if isinstance(owner, Model):
            if name in ("hf_config", "hf_text_config"):
                return Config(name == "hf_text_config")
            if name in facts.WORKED_OUT:
                return self.store.leaf("q", name)
            return self.unknown(f"ModelConfig.{name}")
        if isinstance(owner, Platform):
            return self.platform(name)
        if isinstance(owner, Envs):
            return Variable(name)
        if isinstance(owner, ModuleRef):
            return self._of_module(owner, name)
        if isinstance(owner, ClassRef):
            return self._of_class(owner, name)
        if name in ("value", "name") and isinstance(owner, int) and self.store.is_const(owner):
            return owner
        return Method(owner, name)

    def of_record(self, owner: Any, name: str, state: State, default: Any) -> Any:
        """A field, a method or a property of the record."""
        if name == "_resolved_overrides":
            return Method(owner, name)
        snapshot = dict(owner.snapshot) if isinstance(owner, View) and owner.snapshot else None
        if isinstance(owner, View):
            known = f"O:{name}" in state.fields or f"F:{name}" in state.fields
        else:
            known = f"F:{name}" in state.fields
        member = self.record.member(name)
        if isinstance(member, Function) and not known:
            if any(
                ast.unparse(d) in ("property", "cached_property") for d in member.decorator_list
            ):
                return self.inline(
                    FunctionRef(self.server_args, member, self.record), [owner], {}, state
                )
            return Method(owner, name)
        if not known and not self.is_field(name):
            if isinstance(member, ast.Assign):
                return self.constant(self.server_args, member)
            if default is not None:
                return default
            return Method(owner, name)
        if isinstance(owner, View):
            return self.field_of_view(name, state, snapshot)
        return self.field(name, state)

    def of_config(self, owner: Config, name: str) -> Any:
        """A key of the target's config."""
        if name == "architectures":
            return self.store.leaf("a", *(["draft"] if owner.draft else []))
        if owner.draft:
            return self.unknown("the draft's config")
        if name in ("text_config", "get_text_config"):
            return self.unknown("a part of the config")
        return self.store.leaf("h", name, *(["text"] if owner.text else []))

    def platform(self, name: str) -> Any:
        """A fact of the machine."""
        if name == "device_capability":
            return self._capability()
        fact = facts.PLATFORM.get(name)
        return self.store.leaf("p", fact) if fact else self.unknown(f"the platform's {name}")

    def _of_module(self, owner: ModuleRef, name: str) -> Any:
        if owner.name == "os" and name == "environ":
            return Environ()
        if owner.module is None:
            return ModuleRef(f"{owner.name}.{name}", None)
        found = resolve(owner.module, name)
        if isinstance(found, tuple):
            return self.constant(*found)
        return found if found is not None else ModuleRef(f"{owner.name}.{name}", None)

    def _of_class(self, owner: ClassRef, name: str) -> Any:
        member = owner.member(name)
        if isinstance(member, Function):
            return FunctionRef(owner.module, member, owner)
        if member is None:
            return self.unknown("a member of a class")
        if any("Enum" in base or base == "str" for base in owner.bases):
            value = self.constant(owner.module, member)
            known = isinstance(value, int) and self.store.is_const(value)
            texts = bool({"str", "StrEnum"} & {*owner.bases})
            if known and texts and isinstance(self.store.value(value), str):
                return value
            return Member(owner, self.store.const(f"{owner.name}.{name}"))
        return self.constant(owner.module, member)

    # operators -------------------------------------------------------------------------------

    def variable(self, name: str, kind: str, default: Any, state: State | None = None) -> int:
        """An environment variable as it was set outside."""
        return int(self.store.leaf("e", name, kind, default))

    def declared_variable(self, name: str) -> tuple[str, Any] | None:
        """Kind and default of one of the engine's own variables; None where it is unreadable."""
        module = self.release.module("sglang.srt.environ")
        envs = module.names.get("Envs") if module else None
        member = ClassRef(module, envs).member(name) if module and envs is not None else None
        call = getattr(member, "value", None)
        if not isinstance(call, ast.Call):
            return None
        kind = _ENV_KINDS.get(ast.unparse(call.func))
        default = call.args[0] if call.args else None
        if kind is None or not isinstance(default, ast.Constant):
            return None
        return kind, default.value
