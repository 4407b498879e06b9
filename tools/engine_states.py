"""Ask released engines how many recurrent states and requests they make room for.

    python tools/engine_states.py DIR        DIR/VERSION/sglang/srt is an unpacked wheel

`handle_max_mamba_cache`, `_calculate_mamba_ratio` and `resolve_max_num_reqs` changed in seven
releases. They need no GPU: they are cut out of the sources and run on random settings, with the
few things around them replaced. The results are test data of the memory budget
(tests/engine/plan/memory/engine_states.json); the same wheels give the same bytes.
"""

from __future__ import annotations

import ast
import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import MethodType
from types import SimpleNamespace as Record
from typing import Any

from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parent.parent
OUTPUT = REPOSITORY / "tests" / "engine" / "plan" / "memory" / "engine_states.json"
FILES = (
    "mem_cache/kv_cache_configurator.py",
    "model_executor/model_runner_kv_cache_mixin.py",
    "model_executor/model_runner.py",
)
NAMES = ("handle_max_mamba_cache", "_calculate_mamba_ratio", "resolve_max_num_reqs")
CASES = 24
GIB = 1 << 30
CELL = 32768


def functions(version: Path) -> dict[str, Callable[..., Any]] | None:
    """The functions of a release, by their names without a leading underscore."""
    for name in FILES:
        path = version / "sglang" / "srt" / name
        if not path.is_file() or "max_mamba_cache" not in path.read_text():
            continue
        tree = ast.parse(path.read_text())
        constants = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        found = {
            node.name: node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and any(node.name.strip("_") == one.strip("_") for one in NAMES)
        }
        if any("mamba_cache" in name for name in found):
            return {name: _made(node, constants) for name, node in found.items()}
    return None


def _made(node: ast.FunctionDef, constants: dict[str, Any]) -> Callable[..., Any]:
    for argument in (*node.args.args, *node.args.kwonlyargs):
        argument.annotation = None
    node.returns = None
    node.decorator_list = []
    scope: dict[str, Any] = dict(constants)
    exec(compile(ast.Module([node], []), node.name, "exec"), scope)  # noqa: S102
    return scope[node.name]


def settings(random_: random.Random) -> dict[str, Any]:
    """Random settings of a hybrid model."""
    speculating = random_.random() < 0.6
    requests = [1, 8, 48, 300] if speculating else [None, 1, 8, 48, 300, 2000]
    cached = random_.random() < 0.7
    return {
        "draft_tokens": random_.choice([2, 4, 8, 16]) if speculating else None,
        "max_running_requests": random_.choice(requests),
        "max_mamba_cache_size": random_.choice([None, None, None, 10, 200, 1000]),
        "disable_radix_cache": not cached,
        "ranks": random_.choice([1, 1, 4]),
        "mamba_full_memory_ratio": random_.choice([0.9, 0.5, 2.0]),
        "state_bytes": random_.choice([1, 10, 50, 150]) << 20,
        "extra_buffer": cached and random_.random() < 0.5,
        "disable_overlap_schedule": random_.random() < 0.4,
        "context_length": random_.choice([4096, 131072]),
        "rest": random_.randrange(-2, 60) * GIB + 12_345_678,
    }


def ask(parts: dict[str, Callable[..., Any]], one: dict[str, Any]) -> dict[str, Any]:
    """What the engine makes of the settings: slots, bytes left, requests; or that it refuses."""
    server = _server(one)
    engine = _engine(one, server)
    for name, part in parts.items():
        part.__globals__.update(_around(one, server))
        setattr(engine, name, MethodType(part, engine))
    handle = next(getattr(engine, name) for name in parts if "mamba_cache" in name)
    try:
        left = handle(one["rest"] / GIB)
    except RuntimeError:
        return {"refused": True}
    found = {"slots": server.max_mamba_cache_size, "left": round(left * GIB)}
    tokens = round(left * GIB) // CELL
    resolve = [getattr(engine, name) for name in parts if name.endswith("max_num_reqs")]
    if resolve and tokens > 0 and server.max_mamba_cache_size > 0:
        try:
            found["requests"] = resolve[0](tokens)
        except RuntimeError:
            found["requests"] = 0
    return found


def _server(one: dict[str, Any]) -> Record:
    server = Record(
        **{name: one[name] for name in one if name not in ("rest", "state_bytes", "ranks")},
        speculative_num_draft_tokens=one["draft_tokens"],
        dp_size=one["ranks"],
        enable_dp_attention=one["ranks"] > 1,
        disaggregation_mode="null",
        enable_mamba_extra_buffer=lambda: one["extra_buffer"],
        enable_mamba_extra_buffer_lazy=lambda: False,
        enable_linear_replayssm_spec=False,
    )
    server.override = lambda _why, **values: server.__dict__.update(values)
    return server


def _engine(one: dict[str, Any], server: Record) -> Record:
    params = Record(mamba_cache_per_req=one["state_bytes"], layers=list(range(24)))
    hybrid = Record(mamba2_cache_params=params)
    return Record(
        mambaish_config=hybrid,
        hybrid_gdn_config=hybrid,
        hybrid_kda_config=None,
        server_args=server,
        spec_algorithm=Record(is_none=lambda: one["draft_tokens"] is None),
        dp_size=one["ranks"],
        attn_dp_size=one["ranks"],
        pp_size=1,
        ps=Record(attn_dp_size=one["ranks"], pp_size=1),
        model_config=Record(context_len=one["context_length"], num_hidden_layers=32),
        extra_mamba_cache_bytes_per_req=0,
        fused_entry_bytes=lambda _kind: None,
    )


class _Variables:
    """Environment variables, all at their default: off."""

    def __getattr__(self, _name: str) -> Record:
        return Record(get=lambda: False)


def _tracking_slots(*, extra_buffer: bool, overlap: bool, lazy: bool = False) -> int:
    """0.5.23 mem_cache/allocation_sizing.py:11."""
    if not extra_buffer:
        return 0
    return 1 if lazy or not overlap else 2


def _around(one: dict[str, Any], server: Record) -> dict[str, Any]:
    """What the functions find in their modules."""
    mamba = Record(
        enable_mamba_extra_buffer=one["extra_buffer"],
        enable_mamba_extra_buffer_lazy=False,
        enable_linear_replayssm_spec=False,
    )
    bags = ("get_schedule", "get_memory", "get_spec", "get_disagg", "get_context")
    return {
        **dict.fromkeys(bags, lambda: server),
        "math": math,
        "logger": Record(warning=lambda *_words: None, info=lambda *_words: None),
        "get_exec": lambda: Record(mamba=mamba),
        "get_mamba_tracking_slots": _tracking_slots,
        "mamba_extra_buffer_enabled": lambda: one["extra_buffer"],
        "mamba_extra_buffer_lazy_enabled": lambda: False,
        "_pd_prefill_skips_mamba_spec_state": lambda: False,
        "envs": _Variables(),
    }


def cases(sources: Path) -> Iterator[dict[str, Any]]:
    """All cases of the releases in a folder."""
    for version in (path for path in sources.iterdir() if path.is_dir()):
        yield from of_release(version)


def of_release(version: Path) -> Iterator[dict[str, Any]]:
    """The cases of a release, unpacked in a folder that has its name."""
    parts = functions(version)
    if parts is None or version.name == "0.5.2":  # which is not worked out
        return
    random_ = random.Random(version.name)  # noqa: S311
    for _ in range(CASES):
        one = settings(random_)
        yield {"version": version.name, "settings": one, "engine": ask(parts, one)}


def add_release(version: Path) -> None:
    """Hold the cases of another release."""
    store([*_without(version.name), *of_release(version)])


def remove_release(version: str) -> None:
    """Hold a release no longer."""
    store(_without(version))


def _without(version: str) -> list[dict[str, Any]]:
    return [one for one in json.loads(OUTPUT.read_text()) if one["version"] != version]


def store(found: Iterable[dict[str, Any]]) -> None:
    """Write the file, releases in order."""
    lines = [json.dumps(one) for one in sorted(found, key=lambda one: Version(one["version"]))]
    OUTPUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{OUTPUT.name}: {len(lines)} cases")


if __name__ == "__main__":
    store(cases(Path(sys.argv[1])))
