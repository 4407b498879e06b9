"""A copy of the CPU shim that can be broken on purpose: controls for `speclaunch prove`.

A fault of the verification makes answers wrong. A fault of the draft makes it guess worse, and
leaves every answer as it is. Each is an edit of the kernels, or a function of SGLang 0.5.23 that
is replaced in the engine's processes. All are planted in one copy; a file beside them says which
one is active (none at first), so that one engine serves for all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from speclaunch.engine.facts.cpu_engine import SHIM

TREE, LOCS, TOKENS = "tree", "cache_locs", "draft_tokens"
"""Modules of the shim's `sgl_kernel`."""
NGRAM = "sglang.srt.speculative.ngram_worker"
EAGLE = "sglang.srt.speculative.eagle_worker_v2"
"""STANDALONE and MTP draft through it as well (standalone_worker_v2.py derives from it)."""
_HOOK = Path("speclaunch_shim") / "import_hook.py"
_RUNTIME = Path(__file__).with_name("proof_faults_runtime.py")
_PLANTED = "planted_faults"


@dataclass(frozen=True)
class Fault:
    """One way to be broken. `makes_wrong`: whether answers change (verification), or only the
    acceptance falls (draft)."""

    name: str
    recipe: str
    makes_wrong: bool
    edits: tuple[tuple[str, str, str], ...] = ()
    """Module of the kernels, text that stands there once, text that stands there instead."""
    module: str = ""
    target: str = ""
    """The function of `module` that is replaced by `broken(worker, original, …)` of `code`."""
    code: str = ""
    needs_batch: bool = False
    """Whether it is right as long as one request is asked at a time."""
    changes_tokens: bool = True
    """False where the tiny target chose the same tokens in spite of it (measured). `prove` compares
    tokens, and does not see it there."""

    @property
    def kind(self) -> str:
        """`verify`, `unseen` or `draft`."""
        if not self.makes_wrong:
            return "draft"
        return "verify" if self.changes_tokens else "unseen"


class StaleFaultError(Exception):
    """The kernel is not what the fault was written for."""


def breakable_shim(folder: Path, faults: Sequence[Fault] | None = None) -> Path:
    """A copy of the shim, in a new folder, with all faults and none active. Raises
    StaleFaultError."""
    faults = FAULTS if faults is None else faults
    copy = folder / "shim"
    shutil.copytree(SHIM, copy, ignore=shutil.ignore_patterns("__pycache__"))
    planted = copy / _PLANTED
    planted.mkdir()
    shutil.copy(_RUNTIME, planted / "__init__.py")
    edited, replaced = {}, {}
    for number, fault in enumerate(faults):
        for module, text in _edited(fault, copy).items():
            (planted / f"fault_{number}_{module}.py").write_text(text)
            edited.setdefault(module, []).append(number)
        if fault.code:
            (planted / f"fault_{number}.py").write_text(dedent(fault.code).strip() + "\n")
            replaced.setdefault(fault.module, []).append((number, fault.target))
    (planted / "faults.json").write_text(json.dumps({"edited": edited, "replaced": replaced}))
    kernels = copy / "sgl_kernel" / "__init__.py"
    kernels.write_text(
        f"{kernels.read_text()}\nimport {_PLANTED}\n\n{_PLANTED}.switch(globals())\n"
    )
    hook = copy / _HOOK
    hook.write_text(
        f"{hook.read_text()}\n\nimport {_PLANTED}\n\n{_PLANTED}.watch(PreparedImport)\n"
    )
    activate(copy, None, faults)
    return copy


def activate(shim: Path, fault: Fault | None, faults: Sequence[Fault] | None = None) -> None:
    """Break the engines of this copy so, from now on; None: none of the faults."""
    faults = FAULTS if faults is None else faults
    chosen = shim / _PLANTED / "active"
    new = chosen.with_suffix(".new")
    new.write_text("-1" if fault is None else str(faults.index(fault)))
    new.replace(chosen)


def _edited(fault: Fault, copy: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for module, before, after in fault.edits:
        text = found.get(module) or (copy / "sgl_kernel" / f"{module}.py").read_text()
        if text.count(before) != 1:
            raise StaleFaultError(f"{fault.name}: {before!r} is {text.count(before)} times there")
        found[module] = text.replace(before, after)
    return found


_LEVEL_BY_PARENTS = """\
    level = torch.zeros(batch, n, dtype=torch.int64)
    for node in range(1, n):
        level[:, node] = level.gather(1, parent[:, node : node + 1])[:, 0] + 1
"""
_VERIFICATION = (
    Fault(
        "accepts one draft token too many",
        "cpu_standalone",
        True,
        (
            (
                TREE,
                "            if node == -1:\n                break\n",
                "            if node == -1:\n"
                "                path += [n for n in [child[request][path[-1]]] if n != -1]\n"
                "                break\n",
            ),
        ),
    ),
    Fault(
        "compares the low five bits of tokens",
        "cpu_standalone",
        True,
        (
            (
                TREE,
                "tokens[request][node] != predicted:",
                "tokens[request][node] & 31 != predicted & 31:",
            ),
        ),
    ),
    Fault(
        "takes the bonus token of the root",
        "cpu_mtp_glm",
        True,
        (
            (
                TREE,
                "            predicts[where] = choice[where]\n",
                "            last = step == len(path) - 1\n"
                "            predicts[where] = choice[place[request][0] if last else where]\n",
            ),
        ),
    ),
    Fault(
        "goes on from a sibling of the accepted node",
        "cpu_eagle3",
        True,
        (
            (
                TREE,
                "            path.append(node)\n",
                "            other = sibling[request][node]\n"
                "            path.append(node if other == -1 else other)\n",
            ),
        ),
    ),
    Fault(
        "leaves the KV rows of accepted branches where they are",
        "cpu_eagle3",
        True,
        (
            (
                LOCS,
                "zip(data_ptrs.tolist(), strides.tolist(), strict=True):",
                "zip(data_ptrs.tolist()[:0], strides.tolist()[:0], strict=True):",
            ),
        ),
        changes_tokens=False,
    ),
    Fault(
        "writes the token of another request of the batch",
        "cpu_ngram",
        True,
        (
            (
                TREE,
                "            predicts[where] = choice[where]\n",
                "            predicts[where] = choice[place[request - 1][node]]\n",
            ),
        ),
        needs_batch=True,
    ),
    Fault(
        "lets a node see all nodes before it",
        "cpu_eagle3",
        True,
        (
            (
                TREE,
                "        sees[:, node] |= sees[requests, parent[:, node]]\n",
                "        sees[:, node] |= torch.arange(n) < node\n",
            ),
            (TREE, "    requests = torch.arange(batch)\n", ""),
            (TREE, "    level = sees.sum(-1) - 1\n", _LEVEL_BY_PARENTS),
        ),
        changes_tokens=False,
    ),
    Fault(
        "goes on from the last draft token but one",
        "cpu_standalone",
        True,
        (
            (
                TOKENS,
                "* accept_stride + lengths - 1\n",
                "* accept_stride + (lengths - 2).clamp(min=0)\n",
            ),
        ),
    ),
    Fault(
        "accepts as many as SGLANG_SIMULATE_ACC_LEN says",
        "cpu_standalone",
        True,
        module="sglang.srt.speculative.eagle_utils",
        target="eagle_sample",
        code="""
        from sglang.srt.speculative import spec_utils as made_up

        def broken(worker, original, *words, **more):
            forced = made_up.generate_simulated_accept_index
            _, method, mode = defaults = forced.__defaults__
            before, made_up.SIMULATE_ACC_LEN = made_up.SIMULATE_ACC_LEN, 3.0
            forced.__defaults__ = (3.0, method, mode)
            try:
                return original(*words, **more)
            finally:
                made_up.SIMULATE_ACC_LEN, forced.__defaults__ = before, defaults
        """,
    ),
)

_DRAFTED = """
    import numpy as np

    def broken(worker, original, self, batch):
        tokens, mask = original(self, batch)
        tokens = tokens.reshape(len(batch.reqs), -1).copy()
        tokens[:, 1:] = {tokens}
        return tokens.reshape(-1), mask
"""
_SELECTED = """
    import torch

    def broken(worker, original, *words):
        ids, hidden, scores, (score, tokens, parents) = original(*words)
        return ids, hidden, scores, (score, {tokens}, parents)
"""
_PREPARED = "NGRAMWorker._prepare_draft_tokens"
_FORWARD = "EagleDraftWorker.draft_forward"


def _draft(name: str, recipe: str, target: str, code: str) -> Fault:
    module = NGRAM if target == _PREPARED else EAGLE
    return Fault(name, recipe, False, (), module, target, code)


_DRAFTS = (
    _draft(
        "drafts random tokens",
        "cpu_ngram",
        _PREPARED,
        _DRAFTED.format(tokens="np.random.randint(3, 512, tokens[:, 1:].shape)"),
    ),
    _draft(
        "reads the n-gram table one entry off",
        "cpu_ngram",
        _PREPARED,
        _DRAFTED.format(tokens="np.roll(tokens[:, 1:], 1, axis=1)"),
    ),
    _draft(
        "drafts one and the same token",
        "cpu_standalone",
        "select_top_k_tokens",
        _SELECTED.format(tokens="torch.full_like(tokens, 7)"),
    ),
    _draft(
        "drafts the token after the right one",
        "cpu_mtp_glm",
        "select_top_k_tokens",
        _SELECTED.format(tokens="(tokens + 1) % 512"),
    ),
    _draft(
        "does not map its vocabulary to the target's",
        "cpu_eagle3",
        _FORWARD,
        """
        def broken(worker, original, self, forward_batch):
            mapped, self.hot_token_id = self.hot_token_id, None
            try:
                return original(self, forward_batch)
            finally:
                self.hot_token_id = mapped
        """,
    ),
    _draft(
        "drafts from lost hidden states",
        "cpu_eagle3",
        _FORWARD,
        """
        import torch

        def broken(worker, original, self, forward_batch):
            drafted = forward_batch.spec_info
            drafted.hidden_states = torch.zeros_like(drafted.hidden_states)
            return original(self, forward_batch)
        """,
    ),
)

WRONG_SHARE = _draft(
    "drafts a share of wrong tokens",
    "cpu_standalone",
    "select_top_k_tokens",
    """
    from pathlib import Path

    import torch

    SHARE = Path(__file__).with_name("share")

    def broken(worker, original, *words):
        ids, hidden, scores, (score, tokens, parents) = original(*words)
        wrong = torch.rand(tokens.shape) < float(SHARE.read_text())
        return ids, hidden, scores, (score, torch.where(wrong, (tokens + 8) % 512, tokens), parents)
    """,
)
"""The only fault of its copy: the file `share` next to it holds the share, at any time."""


def spoil(shim: Path, share: float) -> None:
    """Have this share of the draft's tokens be wrong from now on."""
    for name, text in (("share", str(share)), ("active", "0")):
        new = shim / _PLANTED / f"{name}.new"
        new.write_text(text)
        new.replace(shim / _PLANTED / name)


FAULTS = (*_VERIFICATION, *_DRAFTS)
