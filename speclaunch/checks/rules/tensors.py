"""Rules that compare a checkpoint's files with what the engine loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import runs_on_cpu
from speclaunch.core import lazy
from speclaunch.engine import Checkpoint, Plan, UnknownValueError, own_path

if TYPE_CHECKING:
    from speclaunch.checks.rules.loading import Loader, Misshapen, TensorComparison
    from speclaunch.engine import TensorFacts, TensorHeader


_SAME_SHAPES = (None, "fp8")
"""Quantization methods that leave the shapes of matrices unchanged."""
_FROM_DRAFT = ("EAGLE", "EAGLE3", "STANDALONE", "DFLASH")


class Subject(Struct, frozen=True):
    """A checkpoint and the argument that names it."""

    checkpoint: Checkpoint
    argument: str
    tensors: TensorFacts
    loader: Loader | None

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        """Tensor headers by name. Raises UnknownValueError if a file's header could not be read."""
        headers = self.tensors.headers
        if headers.unread is not None:
            raise UnknownValueError(f"{self.checkpoint.name}: {headers.unread}")
        return headers.tensors

    @property
    def is_complete(self) -> bool:
        return not (self.tensors.headers.broken or self.checkpoint.missing_files)

    def compared(self) -> TensorComparison | None:
        if self.loader is None or not self.is_complete:
            return None
        from speclaunch.checks.rules.loading import compare  # noqa: PLC0415

        plain = self.checkpoint.quantization in _SAME_SHAPES
        return compare(self.loader, self.headers, plain=plain)

    def loaded(self) -> list[str]:
        """Return the names of tensors that the class uses; all names if its loader is unknown."""
        if self.loader is None:
            return list(self.headers)
        compared = self.compared()
        own = {} if compared is None else compared.own
        return [
            name
            for name, place in own.items()
            if place not in self.loader.expected or self.loader.expected[place].used
        ]


def examined(plan: Plan) -> tuple[Subject, Loader, TensorComparison] | None:
    """Return the checkpoint, its loader and their comparison; None if they cannot be compared.

    Raises UnknownValueError.
    """
    found = subject(plan)
    if found is None:
        return None
    loader, compared = found.loader, found.compared()
    if loader is None or compared is None:
        return None
    return found, loader, compared


def subject(plan: Plan) -> Subject | None:
    """Return the checkpoint to inspect; None if there is none or it has no files.

    Raises UnknownValueError.
    """
    algorithm = plan.algorithm
    if algorithm is None:
        return _subject(plan, plan.facts.target, "model_path", drafts=False)
    if algorithm not in _FROM_DRAFT:
        return None
    if own_path(plan) is None:
        return _subject(plan, plan.facts.target, "model_path", drafts=True)
    return _subject(plan, plan.facts.draft, "speculative_draft_model_path", drafts=True)


def _subject(
    plan: Plan, checkpoint: Checkpoint | None, argument: str, *, drafts: bool
) -> Subject | None:
    if checkpoint is None or checkpoint.tensors is None:
        return None
    from speclaunch.checks.rules.model_loaders import find_loader  # noqa: PLC0415

    find = find_loader(checkpoint, argument, drafts=drafts)
    if drafts and argument == "model_path" and find is None:
        return None  # the loader of the target's draft layers is not known
    loader = None if find is None else find(checkpoint, plan.request.version)
    return Subject(checkpoint, argument, checkpoint.tensors, loader)


@rule("SPL951")
def missing_tensors(plan: Plan) -> Iterator[Verdict]:
    """Report tensors that the engine's class needs but the files lack."""
    examined_here = examined(plan)
    if examined_here is None:
        return
    found, loader, compared = examined_here
    if not compared.missing:
        return
    missing = compared.missing
    names = [
        name if near is None else f"{name} ({near} is similar)" for name, near in missing.items()
    ]
    renamed = {near: name for name, near in missing.items() if near is not None}
    fix = "use a complete copy of the checkpoint"
    if renamed:
        near, name = next(iter(renamed.items()))
        fix = f"rename the tensors to the engine's names: {near} to {name}"
    yield Verdict(
        f"{len(missing)} of {sum(tensor.needed for tensor in loader.expected.values())} tensors "
        f"that {loader.name} loads are missing: {_listed(names, 4)}",
        at=(found.argument,),
        why="the engine silently skips missing tensors and drops tensors with unknown names; the "
        "missing weights remain uninitialized, and the target rejects nearly every proposal",
        fix=Fix(fix),
    )


def _listed(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_TENSOR_SHAPE_SHOWN = 3
_CUT = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), 0),
    **dict.fromkeys(("o_proj", "down_proj"), 1),
}
"""Sharded matrices, and the axis along which each rank reads its shard. A matrix that is
too long is cut (0.5.23 layers/linear.py:864-872, 1523, 1695; `narrow` in 0.4.6.post5
layers/linear.py:634)."""
_FILLED = ("gate_proj", "up_proj", "o_proj", "down_proj")
"""Matrices that are padded with zeros if they are too short (`pad_or_narrow_weight`)."""
_FILLS = ">=0.5.3"
_CPU_FILLS = ">=0.4.9"
"""Releases that pad all `_FILLED` matrices on a CPU (`narrow_padded_param_and_loaded_weight`)."""


@rule("SPL952")
def tensor_shape(plan: Plan) -> Iterator[Verdict]:
    """Report tensors whose shapes differ from the config."""
    examined_here = examined(plan)
    if examined_here is None:
        return
    found, loader, compared = examined_here
    wrong = [tensor for tensor in compared.misshapen if not is_about_layers(tensor)]
    if not wrong:
        return
    if all(_is_taken(tensor, plan) for tensor in wrong):
        yield _misread(loader.name, found.argument, wrong)
        return
    turned = all(tensor.is_transposed for tensor in wrong)
    yield Verdict(
        f"{loader.name} cannot load these tensors: {_all(wrong)}",
        at=(found.argument,),
        why="the engine refuses: Attempted to load weight into parameter of another size"
        if not turned
        else "they are transposed, and the engine refuses them",
        fix=Fix(
            "transpose them"
            if turned
            else "use the config.json that belongs to these weights, or a draft made for this model"
        ),
    )


def _misread(name: str, argument: str, wrong: list[Misshapen]) -> Verdict:
    return Verdict(
        f"{name} truncates or pads these tensors: {_all(wrong)}",
        at=(argument,),
        why="for sharded matrices the engine reads the rows or columns that it expects, and "
        "silently replaces missing values with zeros: the model computes nonsense",
        fix=Fix("use the config.json that belongs to these weights"),
        severity=Severity.WARNING,
    )


def _is_taken(tensor: Misshapen, plan: Plan) -> bool:
    """True if the engine cuts or pads a matrix to the size that it expects."""
    module = tensor.name.split(".")[-2:][0]
    if module not in _CUT or "experts" in tensor.name or len(tensor.found) != len(tensor.expected):
        return False
    axis = _CUT[module]
    differ = [at for at, size in enumerate(tensor.expected) if tensor.found[at] != size]
    if differ != [axis]:
        return False
    if tensor.found[axis] > tensor.expected[axis]:
        return True
    if module in _FILLED and plan.in_versions(_FILLS):
        return True
    return runs_on_cpu(plan) and plan.in_versions(_CPU_FILLS)


def _all(wrong: list[Misshapen]) -> str:
    more = f"; {len(wrong) - _TENSOR_SHAPE_SHOWN} more" if len(wrong) > _TENSOR_SHAPE_SHOWN else ""
    return (
        "; ".join(
            f"{tensor.name} is {_shape(tensor.found)}, but the config gives "
            f"{_shape(tensor.expected)}"
            for tensor in wrong[:_TENSOR_SHAPE_SHOWN]
        )
        + more
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"


_FIX = Fix("use the draft's original weights: d2t contains the offset of each draft token")


@rule("SPL953")
def token_map(plan: Plan) -> Iterator[Verdict]:
    """Report a map from draft to target vocabulary that points to wrong tokens."""
    found = subject(plan)
    if found is None or not found.is_complete:
        return
    ids = _ids(found, "d2t")
    if ids is None:
        return
    tokens = [number + at for at, number in enumerate(ids)]
    target = plan.facts.target
    vocabulary = (target.vocab_size if target else None) or found.checkpoint.vocab_size
    if vocabulary is not None:
        outside = [at for at, token in enumerate(tokens) if not 0 <= token < vocabulary]
        if outside:
            absolute = (
                all(token < next_token for token, next_token in pairwise(ids))
                and ids[-1] < vocabulary
            )
            hint = ": it contains tokens instead of offsets" if absolute else ""
            yield _verdict(
                f"d2t maps {len(outside)} of the draft's {len(tokens)} tokens outside the "
                f"target's {vocabulary}, the first to {tokens[outside[0]]}{hint}",
                "the engine looks up a nonexistent token in the embedding and crashes",
                Severity.ERROR,
            )
            return
    twice = len(tokens) - len(set(tokens))
    if twice:
        yield _verdict(
            f"d2t maps {twice} of the draft's {len(tokens)} tokens to a target token that is "
            "already mapped",
            "the engine adds each entry's index to its value; the draft then proposes wrong "
            "tokens, and the target rejects them",
        )
        return
    known = _ids(found, "t2d")
    if known is None:
        return
    marked = {token for token, mark in enumerate(known) if mark}
    if marked != set(tokens):
        differing = len(marked ^ set(tokens))
        yield _verdict(
            f"d2t and t2d contain different tokens: {differing} are in only one of them",
            "the engine reads only d2t: if it is wrong, the draft proposes the wrong tokens",
        )
    elif sorted(tokens) != tokens:
        yield _verdict(
            "d2t is not ascending: the draft's tokens are in a different order from the target's",
            "EAGLE-3 maps are ascending; rows of lm_head that were not reordered with this map "
            "represent other tokens",
        )


def _ids(found: Subject, name: str) -> tuple[int, ...] | None:
    for known in (name, f"model.{name}"):
        if known in found.headers and len(found.headers[known].shape) == 1:
            return found.tensors.integers(known)
    return None


def _verdict(message: str, why: str, severity: Severity | None = None) -> Verdict:
    return Verdict(
        message, at=("speculative_draft_model_path",), why=why, fix=_FIX, severity=severity
    )


@rule("SPL954")
def fc_captured_layers(plan: Plan) -> Iterator[Verdict]:
    """Report a draft whose `fc` was made for a different number of hidden states."""
    examined_here = examined(plan)
    if examined_here is None:
        return
    found, _, compared = examined_here
    for tensor in compared.misshapen:
        if not is_about_layers(tensor):
            continue
        width = found.checkpoint.target_hidden_size or tensor.expected[0]
        yield Verdict(
            f"{tensor.name} accepts {tensor.found[1] / width:g} hidden states of the target, but "
            f"the config names {tensor.expected[1] // width}",
            at=(found.argument,),
            why="the engine builds the layer from the config and refuses these weights",
            fix=Fix("use the config.json that belongs to these weights"),
        )


def is_about_layers(tensor: Misshapen) -> bool:
    """True if the tensor is `fc.weight` and only its number of columns is wrong."""
    is_matrix = len(tensor.found) == 2 and tensor.name.endswith("fc.weight")
    return is_matrix and tensor.found[0] == tensor.expected[0]


_MAY_BE_ZERO = (".bias", "e_score_correction_bias")


@rule("SPL955")
def zero_weights(plan: Plan) -> Iterator[Verdict]:
    """Report tensors that are all zero, except biases."""
    found = subject(plan)
    if found is None or not found.is_complete:
        return
    contents = found.tensors.contents(found.loaded())
    empty = [
        name for name, content in contents.items() if content.all_zero and not _may_be(found, name)
    ]
    if not empty:
        return
    partly = any(not contents[name].all_read for name in empty)
    read = " in the part that was read" if partly else ""
    yield Verdict(
        f"{_message_of_empty_weights(empty)} all zero{read}",
        at=(found.argument,),
        why="a layer of zeros outputs zeros: such files come from interrupted downloads and "
        "conversions, and the engine loads them silently",
        fix=Fix("use a new copy of the weights"),
    )


@rule("SPL956")
def nan_weights(plan: Plan) -> Iterator[Verdict]:
    """Report tensors that contain NaN or infinity."""
    found = subject(plan)
    if found is None or not found.is_complete:
        return
    contents = found.tensors.contents(found.loaded())
    broken = [name for name, content in contents.items() if content.not_finite]
    if broken:
        yield Verdict(
            f"{_message_of_empty_weights(broken)} not finite (NaN or infinity)",
            at=(found.argument,),
            why="one such value makes all outputs NaN, and almost no proposal is accepted",
            fix=Fix("use an earlier checkpoint, or a copy in bfloat16"),
        )


def _may_be(found: Subject, name: str) -> bool:
    norm = "norm" in name and found.loader is not None and found.loader.has_offset_norms
    return name.endswith(_MAY_BE_ZERO) or norm


def _message_of_empty_weights(names: Sequence[str]) -> str:
    return _listed(names, 3) + (" is" if len(names) == 1 else " are")


@rule("SPL957")
def broken_weights(plan: Plan) -> Iterator[Verdict]:
    """Report broken or missing weight files."""
    facts = plan.facts
    yield from _of(facts.target, "model_path")
    yield from _of(facts.draft, "speculative_draft_model_path")


def _of(checkpoint: Checkpoint | None, argument: str) -> Iterator[Verdict]:
    if checkpoint is None or checkpoint.tensors is None:
        return
    broken, missing = checkpoint.tensors.headers.broken, checkpoint.missing_files
    if broken:
        yield Verdict(
            f"{len(broken)} weight file(s) cannot be loaded: {broken[0]}",
            at=(argument,),
            why="the engine refuses: Error while deserializing header",
            fix=Fix("download the file again"),
        )
    elif missing:
        yield Verdict(
            f"the index lists missing files: {', '.join(missing[:3])}",
            at=(argument,),
            why="the tensors in these files are missing; releases that do not check for them leave "
            "the weights uninitialized",
            fix=Fix("download the missing files"),
        )


_LAYER = lazy(r"(?:model\.)?layers\.([0-9]{1,6})\.")


@rule("SPL958")
def unclaimed_layers(plan: Plan) -> Iterator[Verdict]:
    """Report layers in a draft's files that its config does not declare."""
    examined_here = examined(plan)
    if examined_here is None:
        return
    found, loader, compared = examined_here
    if loader.layers is None:
        return
    built = loader.layers
    behind = {
        int(layer[1])
        for name in compared.unread
        if (layer := _LAYER.match(loader.place(name) or "")) and int(layer[1]) >= built
    }
    if behind:
        yield Verdict(
            f"the files contain layer{'s' * (len(behind) > 1)} "
            f"{', '.join(map(str, sorted(behind)[:5]))}, but the engine builds {built} layer(s)",
            at=(found.argument,),
            why="the engine silently drops layers beyond num_hidden_layers: the draft runs "
            "with only some of its layers",
            fix=Fix("set num_hidden_layers in config.json to the number in the files"),
        )


_EMBEDDINGS = (
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
)


@rule("SPL959")
def mask_embedding(plan: Plan) -> Iterator[Verdict]:
    """Report a DFLASH draft whose mask token has an all-zero embedding."""
    draft, target = plan.facts.draft, plan.facts.target
    if draft is None or target is None or target.tensors is None:
        return
    from speclaunch.checks.rules.model_loaders import mask_token  # noqa: PLC0415

    token = mask_token(draft)
    headers = target.tensors.headers.tensors
    name = next((embedding for embedding in _EMBEDDINGS if embedding in headers), None)
    if token is None or name is None or len(headers[name].shape) != 2:
        return
    if token >= headers[name].shape[0]:
        problem = f"has {headers[name].shape[0]} rows"
    else:
        row = target.tensors.row(name, token)
        if row is None or not row.all_zero:
            return
        problem = "has only zeros for it"
    yield Verdict(
        f"the draft's mask token is {token}, but the target's {name} {problem}",
        at=("speculative_draft_model_path", "model_path"),
        why="every drafted position starts from the mask token's embedding; without it the target "
        "rejects the draft's tokens",
        fix=Fix("set mask_token_id to the value that the draft was trained with"),
    )


_HEAD = "lm_head.weight"


@rule("SPL960")
def tied_head(plan: Plan) -> Iterator[Verdict]:
    """Report a separate output layer in the files although the config ties it to the embedding."""
    found = subject(plan)
    if found is None or found.loader is None or not found.is_complete:
        return
    from speclaunch.checks.rules.loading import is_tied  # noqa: PLC0415

    if not is_tied(found.checkpoint) or not _is_another(found):
        return
    yield Verdict(
        "the config ties the output layer to the embedding, but the files contain a different "
        f"{_HEAD}",
        at=(found.argument,),
        why="with tie_word_embeddings the engine uses the embedding instead of the files' "
        "output layer: the draft proposes the wrong tokens, and they are rejected",
        fix=Fix("set tie_word_embeddings to false in config.json"),
    )


def _is_another(found: Subject) -> bool:
    head = found.headers.get(_HEAD)
    if head is None:
        return False
    if head.shape[:1] != (found.checkpoint.vocab_size,):
        return True  # reduced vocabulary: no embedding has as many rows
    names = ("model.embed_tokens.weight", "embed_tokens.weight")
    embedding = next((name for name in names if name in found.headers), None)
    if embedding is None:
        return False  # the target's is used, whose content is not known here
    both = found.tensors.fingerprint(_HEAD), found.tensors.fingerprint(embedding)
    return None not in both and both[0] != both[1]
