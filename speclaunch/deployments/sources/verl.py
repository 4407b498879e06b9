"""verl's server commands: Hydra overrides from which verl builds SGLang's `ServerArgs`.

`rollout.engine_kwargs.sglang` replaces what verl derives from its own options. `model.mtp` replaces
both. Sources: volcengine/verl at 01217507,
verl/workers/rollout/sglang_rollout/async_sglang_server.py (`launch_server`), and a later revision
of it with `mtp`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import Dropped, Invocation, InvocationKind, Word
from speclaunch.deployments.sources.wrappers import cut

_ROLLOUT, _MTP = "actor_rollout_ref.rollout.", "actor_rollout_ref.model.mtp."
_ENGINE = f"{_ROLLOUT}engine_kwargs.sglang."
_OVERRIDE = lazy(r"(?:\+{1,2})?(actor_rollout_ref\.(?:rollout|model)\.[\w.]+)=")
_OWN = {
    "actor_rollout_ref.model.path": "model_path",
    f"{_ROLLOUT}tensor_model_parallel_size": "tp_size",
    f"{_ROLLOUT}gpu_memory_utilization": "mem_fraction_static",
    f"{_ROLLOUT}max_num_seqs": "max_running_requests",
    f"{_ROLLOUT}data_parallel_size": "dp_size",
    f"{_ROLLOUT}expert_parallel_size": "ep_size",
    f"{_ROLLOUT}dtype": "dtype",
    f"{_ROLLOUT}load_format": "load_format",
    f"{_ROLLOUT}quantization": "quantization",
    f"{_ROLLOUT}enforce_eager": "disable_cuda_graph",
    "actor_rollout_ref.model.trust_remote_code": "trust_remote_code",
}
"""verl's options and the engine arguments that they set."""
_ALWAYS = (
    *("model_path", "tp_size", "mem_fraction_static", "max_running_requests"),
    "attention_backend",
)
"""Engine arguments that verl sets even if the command does not."""
_SPECULATION = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": "3",
    "speculative_eagle_topk": "1",
    "speculative_num_draft_tokens": "4",
}
"""Arguments and defaults of `model.mtp` (verl/workers/config/model.py, `MtpConfig`)."""
_OFF = ("false", "null", "none", "")


def read_overrides(words: Sequence[Field]) -> Invocation | None:
    """Return the server that verl starts for its rollouts.

    Return None for another engine, and for a command that neither sets `engine_kwargs.sglang`
    options nor enables `mtp` for rollouts. The invocation's `program` ends before the first
    override.
    """
    found: dict[str, Field] = {}
    rest: list[Word] = []
    start = len(words)
    for index, word in enumerate(words):
        match = _OVERRIDE.match(word.text)
        if match is not None:
            start = min(start, index)
            found[match[1]] = cut(word, match.end())
        elif index > start and word.unknown is not None and "=" not in word.text:
            rest.append(word.word())
    runs_mtp = _is_true(found, f"{_MTP}enable") and _is_true(found, f"{_MTP}enable_rollout")
    engine = found.get(f"{_ROLLOUT}name")
    is_sglang = _text(found, f"{_ROLLOUT}name") == "sglang"
    if engine is not None and engine.unknown is None and not is_sglang:
        return None
    if not any(name.startswith(_ENGINE) for name in found) and not (runs_mtp and is_sglang):
        return None
    place = words[max(start - 1, 0)].place
    values = _values(found, runs_mtp=runs_mtp)
    argv = [*rest, *_unset(values, place)]
    if runs_mtp:
        for name, default in _SPECULATION.items():
            if name not in values:
                argv += (_flag(name, place), Word(default, place))
    dropped: list[Dropped] = []
    for name, value in values.items():
        token = value.word()
        text = _unquoted(token.text)
        if token.evaluated and text.lower() in _OFF:
            why = "a false or null field keeps its default"
            dropped.append(Dropped(f"{name}={text}", token.place, why))
        elif token.evaluated and text.lower() == "true":
            argv.append(_flag(name, token.place))
        else:
            argv += (_flag(name, token.place), replace(token, text=text))
    program = tuple(word.word() for word in words[:start])
    return Invocation(
        InvocationKind.ENGINE, tuple(argv), place, program=program, dropped=tuple(dropped)
    )


def _values(found: Mapping[str, Field], *, runs_mtp: bool) -> dict[str, Field]:
    """Return the overrides by the engine argument that they set; the last one wins."""
    values = {own: found[name] for name, own in _OWN.items() if name in found}
    if _text(found, f"{_ROLLOUT}data_parallel_size") not in ("", "1"):
        values.pop("tp_size", None)  # later revisions multiply the two
    values |= {n.removeprefix(_ENGINE): v for n, v in found.items() if n.startswith(_ENGINE)}
    if runs_mtp:
        for name in _SPECULATION:
            values.pop(name, None)
            if f"{_MTP}{name}" in found:
                values[name] = found[f"{_MTP}{name}"]
    return values


def _flag(name: str, place: Place) -> Word:
    return Word(f"--{name.replace('_', '-')}", place)


def _unset(values: Mapping[str, Field], place: Place) -> Iterator[Word]:
    """Yield the arguments that only verl sets, with unknown values."""
    for name in _ALWAYS:
        if name not in values:
            yield _flag(name, place)
            yield Word("???", place, evaluated=False, why="verl sets it")


def _is_true(found: Mapping[str, Field], name: str) -> bool:
    return _text(found, name).lower() == "true"


def _text(found: Mapping[str, Field], name: str) -> str:
    return _unquoted(found[name].text) if name in found else ""


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
