"""Make the data on model architectures that ships with speclaunch, from released wheels.

    python tools/architectures.py build             every version of the catalogue, from the cache

Wheels are kept where tools/catalogue.py keeps them. Nothing of a wheel is run: what the engine
does with the name of an architecture is read from the syntax trees of its server arguments, its
model configuration and its models. The same wheels give the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tools")]

from catalogue import default_cache, held, wheel  # noqa: E402

from speclaunch.engine.plan.architectures import ANY, DATA  # noqa: E402
from speclaunch.engine.releases import argument  # noqa: E402
from speclaunch.engine.releases.extraction.source import PackageSource  # noqa: E402
from speclaunch.engine.releases.versions import ascending  # noqa: E402

Records = dict[str, dict[str, Any]]

SRT = "sglang/srt/"
MODEL_CONFIG = SRT + "configs/model_config.py"
LISTS = {  # key of ours: list or set of the model configuration
    "multimodal": "multimodal_model_archs",
    "text_only": "mm_disabled_models",
    "no_piecewise": "piecewise_cuda_graph_disabled_model_archs",
    "multimodal_piecewise": "multimodal_piecewise_cuda_graph_supported_model_archs",
    "multimodal_breakable": "multimodal_breakable_cuda_graph_supported_model_archs",
    "sliding_window": "hybrid_swa_archs",
}
ATTENTION = {
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "page_size",
    "sm100_default_attention_backend",
}
BACKENDS = {
    *("triton", "torch_native", "fa3", "fa4", "flashinfer", "flashmla", "trtllm_mla", "trtllm_mha"),
    *("nsa", "dsa", "dsv4", "aiter", "cutlass_mla", "intel_amx", "intel_xpu"),
}
HOOKS = {  # method of a model's class: key of ours
    "set_eagle3_layers_to_capture": "eagle3",
    "set_dflash_layers_to_capture": "dflash",
    "get_embed_and_head": "embedding",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the data; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["build"])
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are")
    chosen = parser.parse_args(arguments)
    store({version: read_release(version, chosen.cache) for version in held()})
    return 0


def add_release(version: str, cache: Path) -> None:
    """Hold the architectures of another release."""
    store({**stored(), version: read_release(version, cache)})


def remove_release(version: str) -> None:
    """Hold a release no longer."""
    store({held: found for held, found in stored().items() if held != version})


def read_release(version: str, cache: Path) -> Records:
    """The architectures in the wheel of a release."""
    with PackageSource(wheel(version, cache)) as source:
        found = read(source)
    print(f"{version}: {len(found)} architectures")
    return found


def stored() -> dict[str, Records]:
    """The data as they are, by version."""
    return argument.decode(json.loads(DATA.read_text("utf-8")))


def store(records: dict[str, Records]) -> None:
    """Write the data."""
    versions = ascending(records)
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(argument.encode(versions, records), encoding="utf-8")
    print(f"{DATA.name}: {DATA.stat().st_size} bytes")


def read(source: PackageSource) -> Records:
    """What one release does with each architecture that it knows, by its name."""
    code = Code(source)
    found: Records = {}

    def note(names: Sequence[str], key: str, value: Any = 1) -> None:
        for name in names:
            found.setdefault(name, {})[key] = value

    for name, hooks in registered(code).items():
        note([name], "model")
        for hook in sorted(hooks):
            note([name], hook)
    for file in code.argument_files():
        note(mtp_targets(code, file), "mtp")
        note(multi_layer_targets(code, file), "multi_layer")
        for names, values in automatic(code, file):
            note(names, "auto", values)
        note(linear_states(code, file), "hybrid")
        for names, backends in attention_overrides(code, file):
            for name in names:
                known = found.setdefault(name, {}).get("backends", [])
                note([name], "backends", sorted({*known, *backends}))
    for file in ("utils.py", "utils/common.py"):
        note(code.names_in(SRT + file, "is_fa3_default_architecture"), "fa3")
    note(attention_sinks(code), "sinks")
    for file in (SRT + "server_args.py", SRT + "arg_groups/overrides.py"):
        note(code.names_in(file, "_support_mamba_cache_extra_buffer"), "extra_buffer")
        known = code.assigned(file, "_MAMBA_EXTRA_BUFFER_ARCHS", 0)
        note(code.strings(*known) if known else [], "extra_buffer")
    for names, drafts in draft_names(code):
        note(names, "draft", drafts)
    for condition, names in latent_attention(code):
        note(names, "mla", condition)
    for function in ("is_deepseek_nsa", "is_deepseek_dsa"):
        note(code.names_in(MODEL_CONFIG, function), "sparse")
    for key, name in LISTS.items():
        note(listed(code, name), key)
    return {name: dict(sorted(record.items())) for name, record in found.items()}


class Code:
    """The modules of a release, and the names in them."""

    def __init__(self, source: PackageSource) -> None:
        self.source = source
        self._trees: dict[str, ast.Module] = {}

    def tree(self, file: str) -> ast.Module:
        """The syntax tree of a file; empty where there is none."""
        if file not in self._trees:
            text = self.source.read(file) or ""
            self._trees[file] = self.source.parse(file, text.removeprefix("\ufeff"))
        return self._trees[file]

    def argument_files(self) -> list[str]:
        """Where server arguments are resolved."""
        files = [f for f in self.source.server_files() if f.startswith(SRT + "arg_groups/")]
        return [SRT + "server_args.py", *sorted(files)]

    def model_files(self) -> list[str]:
        """The modules that the engine's registry looks for models in."""
        return sorted(f for f in self.source.server_files() if f.startswith(SRT + "models/"))

    def assigned(self, file: str, name: str, depth: int = 3) -> tuple[str, ast.expr] | None:
        """A name's value at the top of a module, through the imports of the package."""
        for node in self.tree(file).body:
            match node:
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    return file, value
                case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name:
                    return (file, value) if value is not None else None
        for node in ast.walk(self.tree(file)):
            if isinstance(node, ast.ImportFrom) and node.module and depth:
                for alias in node.names:
                    other = self.source.module_file(node.module)
                    if (alias.asname or alias.name) == name and other:
                        return self.assigned(other, alias.name, depth - 1)
        return None

    def returned(self, file: str, function: str) -> list[str]:
        """The texts that a function returns."""
        return [
            str(part.value.value)
            for node in ast.walk(self.tree(file))
            if isinstance(node, ast.FunctionDef) and node.name == function
            for part in ast.walk(node)
            if isinstance(part, ast.Return) and isinstance(part.value, ast.Constant)
        ]

    def names_in(self, file: str, function: str) -> list[str]:
        """The architectures that a function names."""
        for node in ast.walk(self.tree(file)):
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return self.strings(file, node)
        return []

    def strings(self, file: str, node: ast.AST) -> list[str]:
        """The names of architectures in an expression, constants of other modules included."""
        found: list[str] = []
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.append(part.value)
            elif isinstance(part, ast.Name) and part.id.isupper():
                known = self.assigned(file, part.id)
                found += self.strings(*known) if known else []
        return [name for name in found if name[:1].isupper() and name.upper() != name]


def mtp_targets(code: Code, file: str) -> list[str]:
    """Targets that are their own draft when no path of a draft is given.

    `if model_arch in […]: if …speculative_draft_model_path is None: … = …model_path`
    """
    found = []
    for node in _ifs(code.tree(file)):
        values = [value for part in node.body for name, value in _settings(part) if name == _PATH]
        if _compares(node.test, "model_arch") and any(
            isinstance(value, ast.Attribute) and value.attr == "model_path" for value in values
        ):
            found += code.strings(file, node.test)
    return found


_PATH = "speculative_draft_model_path"


def multi_layer_targets(code: Code, file: str) -> list[str]:
    """Targets for which EAGLE switches `enable_multi_layer_eagle` on."""

    def switches(node: ast.AST) -> bool:
        return any(
            name == "enable_multi_layer_eagle" and getattr(value, "value", None) is True
            for name, value in _settings(node)
        )

    found = []
    for node in ast.walk(code.tree(file)):
        if isinstance(node, ast.FunctionDef) and node.decorator_list and switches(node):
            for decorator in node.decorator_list:
                found += code.strings(file, decorator)
        elif isinstance(node, ast.If) and any(switches(part) for part in node.body):
            found += code.strings(file, node.test) if _compares(node.test, "model_arch") else []
    return found


def attention_overrides(code: Code, file: str) -> Iterator[tuple[list[str], set[str]]]:
    """(architectures, backends) where the engine chooses the backend or the pages by the model."""
    for node in ast.walk(code.tree(file)):
        if isinstance(node, ast.FunctionDef):
            where: list[ast.AST] = list(node.decorator_list)
            registers = any("register" in ast.unparse(part) for part in where)
            body = node.body if registers else []
        elif isinstance(node, ast.If) and _compares(node.test, "model_arch"):
            where, body = [node.test], _own(node)
        else:
            continue
        names = [name for part in where for name in code.strings(file, part)]
        if names and any(name in ATTENTION for part in body for name, _ in _settings(part)):
            texts = {
                part.value
                for statement in body
                for part in ast.walk(statement)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
            yield names, texts & BACKENDS


def linear_states(code: Code, file: str) -> list[str]:
    """Targets with layers of linear attention, whose states are cached beside the KV cache: in a
    list, in a condition of what resolves it, or by a branch that calls its handler, itself or
    through a function of another file."""
    known = code.assigned(file, "_MAMBA_RADIX_CACHE_ARCHS", 0)
    found = code.strings(*known) if known else []
    for function in _functions(code.tree(file)):
        if function.name == "_mamba_radix_cache_resolution":
            tests = [node.test for node in _ifs(function) if _compares(node.test, "model_arch")]
            found += [name for test in tests for name in code.strings(file, test)]
    handlers = {"_handle_mamba_radix_cache"}
    for other in code.argument_files():
        for function in _functions(code.tree(other)):
            if "._handle_mamba_radix_cache(" in ast.unparse(function) and other != file:
                handlers.add(function.name)
    for node in _ifs(code.tree(file)):
        own = " ".join(ast.unparse(part) for part in _own(node))
        calls = any(f"{name}(" in own for name in handlers)
        if calls and _compares(node.test, "model_arch"):
            found += code.strings(file, node.test)
    return found


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def attention_sinks(code: Code) -> list[str]:
    """Models with attention sinks, whatever their config says."""
    for node in ast.walk(code.tree(MODEL_CONFIG)):
        if isinstance(node, ast.FunctionDef) and node.name == "_detect_attention_sinks":
            return code.strings(MODEL_CONFIG, next(_ifs(node)).test)
    return []


def automatic(code: Code, file: str) -> Iterator[tuple[list[str], list[int]]]:
    """(architectures, steps and topk and tokens); `*` for any other one."""
    for function in ast.walk(code.tree(file)):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not function.name.endswith("auto_choose_speculative_params"):
            continue
        conditional = set()
        for node in _ifs(function):
            for part in node.body:
                if isinstance(part, ast.Return):
                    conditional.add(part)
                    names = code.strings(file, node.test)
                    standalone = "STANDALONE" in ast.unparse(node.test)
                    yield (["STANDALONE"] if standalone else names), _numbers(part)
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node not in conditional:
                yield [ANY], _numbers(node)


def draft_names(code: Code) -> Iterator[tuple[list[str], list[str]]]:
    """(architectures in a draft's config, the ones that the engine loads it as)."""
    tree = code.tree(MODEL_CONFIG)
    for node in _ifs(tree):
        if "is_draft_model" not in ast.unparse(node.test):
            continue
        drafts = [name for part in node.body for name in _renamed(part)]
        names = code.strings(MODEL_CONFIG, node.test)
        if "Dots3Config" in ast.unparse(node.test):  # configure_draft_model() names the draft
            drafts = code.returned("sglang/srt/configs/dots3.py", "configure_draft_model")
            names = [name.removesuffix("NextN") for name in drafts]
        if names and drafts:
            yield names, sorted(set(drafts))


def _renamed(node: ast.AST) -> Iterator[str]:
    """What is stored as the architecture."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assign) and "architectures" in ast.unparse(part.targets[0]):
            for value in ast.walk(part.value):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value


def latent_attention(code: Code) -> Iterator[tuple[str, list[str]]]:
    """Architectures with multi-head latent attention: always, where the config has its rank, or
    where it does not switch it off (`use_mla`)."""
    for node in _ifs(code.tree(MODEL_CONFIG)):
        sets = any(
            isinstance(part, ast.Assign) and ast.unparse(part.value) == "AttentionArch.MLA"
            for part in node.body
        )
        if not sets:
            continue
        either = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
        for test in node.test.values if either else [node.test]:
            condition = "ranked" if isinstance(test, ast.BoolOp) else "always"
            if "use_mla" in ast.unparse(test):
                condition = "switched"
            yield condition, code.strings(MODEL_CONFIG, test)


def listed(code: Code, name: str) -> list[str]:
    """The architectures in a list of the model configuration."""
    for node in ast.walk(code.tree(MODEL_CONFIG)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return code.strings(MODEL_CONFIG, node.value)
    return []


def registered(code: Code) -> dict[str, set[str]]:
    """Every architecture that the registry knows, with the hooks that its class has."""
    classes: dict[tuple[str, str], ast.ClassDef] = {}
    for file in code.model_files():
        for node in code.tree(file).body:
            if isinstance(node, ast.ClassDef):
                classes[file, node.name] = node

    def hooks(file: str, name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        node = classes.get((file, name))
        if node is None:
            other = _imported_from(code, file, name)
            if other is None or (other[0] + other[1]) in seen:
                return set()
            return hooks(*other, seen | {other[0] + other[1]})
        own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        found = {HOOKS[part] for part in own & HOOKS.keys()}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id != name:
                found |= hooks(file, base.id, seen)
        return found

    found: dict[str, set[str]] = {}
    for file in code.model_files():
        entry = code.assigned(file, "EntryClass")
        for part in ast.walk(entry[1]) if entry and entry[0] == file else ():
            if isinstance(part, ast.Name):
                found[part.id] = found.get(part.id, set()) | hooks(file, part.id)
    return found


def _imported_from(code: Code, file: str, name: str) -> tuple[str, str] | None:
    for node in ast.walk(code.tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                other = code.source.module_file(node.module)
                if (alias.asname or alias.name) == name and other:
                    return other, alias.name
    return None


def _ifs(tree: ast.AST) -> Iterator[ast.If]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.If))


def _own(node: ast.If) -> list[ast.stmt]:
    """The body of a branch, but for what depends on the architecture once more."""
    return [
        part
        for part in node.body
        if not (isinstance(part, ast.If) and _compares(part.test, "model_arch"))
    ]


def _compares(test: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(test))


def _settings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(field, value) of every assignment, keyword and dictionary entry below a node."""
    for part in ast.walk(node):
        match part:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(name)))]):
                yield name, part.value
            case ast.keyword(arg=str(name), value=value):
                yield name, value
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield key.value, value


def _numbers(node: ast.Return) -> list[int]:
    assert isinstance(node.value, ast.Tuple), ast.unparse(node)
    return [int(ast.literal_eval(part)) for part in node.value.elts]


if __name__ == "__main__":
    sys.exit(main())
