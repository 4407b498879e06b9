"""Each operator of the stand-in ``sgl_kernel`` against a plain reference, on random input.

Run by the engine's interpreter with the shim on its path, not by pytest; prints, as JSON, for
each check ``null`` or what went wrong. The references follow the contract in SGLang's own Triton
kernels, element by element, and share no code with the operators.
"""

import json
import math
import random
import sys
import traceback
from collections.abc import Callable

import sgl_kernel
import torch
from sgl_kernel.speculative import reconstruct_indices_from_tree_mask

CHECKS: list[Callable[[random.Random], None]] = []
ROUNDS = 25


def check(function: Callable[[random.Random], None]) -> Callable[[random.Random], None]:
    CHECKS.append(function)
    return function


def equal(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    if not torch.equal(found, expected):
        raise AssertionError(f"{name}: {found.tolist()} is not {expected.tolist()}")


def close(name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    if not torch.allclose(found.float(), expected.float(), atol=tolerance, rtol=0):
        worst = (found.float() - expected.float()).abs().max()
        raise AssertionError(f"{name}: off by up to {worst}")


def refused(kind: type[Exception], function: Callable[..., object], *arguments: object) -> None:
    try:
        function(*arguments)
    except kind:
        return
    raise AssertionError(f"{function.__name__} did not refuse {arguments}")


def table(dice: random.Random) -> tuple[torch.Tensor, torch.Tensor, int]:
    """A request-to-token table of distinct slots, and the rows of a batch."""
    pool_len, requests = dice.randint(40, 60), dice.randint(5, 8)
    slots = torch.randperm(pool_len * requests).view(requests, pool_len).int()
    rows = torch.tensor(dice.sample(range(requests), dice.randint(1, 4)))
    return slots, rows, pool_len


# ---------------------------------------------------------------------------------- cache locations


def ranges(dice: random.Random, bs: int) -> tuple[list[int], list[int]]:
    start = [dice.randint(0, 30) for _ in range(bs)]
    return start, [begin + dice.randint(0, 9) for begin in start]


@check
def assign_req_to_token_pool(dice: random.Random) -> None:
    slots, rows, pool_len = table(dice)
    start, end = ranges(dice, len(rows))
    new = torch.randint(1000, 2000, (sum(end) - sum(start) + 3,))
    expected, place = slots.clone(), 0
    for row, begin, stop in zip(rows.tolist(), start, end, strict=True):
        for position in range(begin, stop):
            expected[row, position] = new[place]
            place += 1
    sgl_kernel.assign_req_to_token_pool_cpu(
        rows, slots, torch.tensor(start), torch.tensor(end).int(), new, pool_len
    )
    equal("table", slots, expected)


@check
def assign_extend_cache_locs(dice: random.Random) -> None:
    slots, rows, pool_len = table(dice)
    start, end = ranges(dice, len(rows))
    out = torch.full((sum(end) - sum(start) + 2,), -7)
    expected = [
        int(slots[row, position])
        for row, begin, stop in zip(rows.tolist(), start, end, strict=True)
        for position in range(begin, stop)
    ]
    arguments = (rows, slots, torch.tensor(start), torch.tensor(end))
    sgl_kernel.assign_extend_cache_locs_cpu(*arguments, out, pool_len)
    equal("slots", out, torch.tensor([*expected, -7, -7]))
    outside = torch.full_like(rows, pool_len + 1)
    refused(
        ValueError, sgl_kernel.assign_extend_cache_locs_cpu, *arguments[:3], outside, out, pool_len
    )
    if expected:
        refused(ValueError, sgl_kernel.assign_extend_cache_locs_cpu, *arguments, out[:0], pool_len)


@check
def assign_draft_cache_locs_contiguous(dice: random.Random) -> None:
    slots, rows, pool_len = table(dice)
    topk, steps = dice.randint(1, 3), dice.randint(1, 3)
    lengths = [dice.randint(0, 30) for _ in rows]
    out = torch.empty(len(rows) * topk * steps, dtype=torch.int64)
    expected = [
        int(slots[row, length + offset])
        for row, length in zip(rows.tolist(), lengths, strict=True)
        for offset in range(topk * steps)
    ]
    sgl_kernel.assign_draft_cache_locs_contiguous_cpu(
        rows, slots, torch.tensor(lengths), out, pool_len, topk, steps
    )
    equal("slots", out, torch.tensor(expected))


@check
def copy_all_layer_kv_cache(dice: random.Random) -> None:
    buffers = [torch.randn(20, 2, width) for width in (3, 3, 5)]
    sources = [dice.randrange(20) for _ in range(6)]
    targets = dice.sample(range(20), 6)  # overlapping the sources now and then
    expected = [buffer.clone() for buffer in buffers]
    for before, after in zip(buffers, expected, strict=True):
        for target, source in zip(targets, sources, strict=True):
            after[target] = before[source]
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    sizes = torch.tensor([buffer[0].nbytes for buffer in buffers])
    arguments = (addresses, sizes, torch.tensor(targets), torch.tensor(sources))
    sgl_kernel.copy_all_layer_kv_cache_cpu(*arguments)
    for found, wanted in zip(buffers, expected, strict=True):
        equal("buffer", found, wanted)
    refused(ValueError, sgl_kernel.copy_all_layer_kv_cache_cpu, *arguments[:3], torch.tensor([1]))
    refused(ValueError, sgl_kernel.copy_all_layer_kv_cache_cpu, *arguments[:3], -arguments[2] - 1)


# ------------------------------------------------------------------------------------- draft tokens


@check
def fill_bonus_tokens(dice: random.Random) -> None:
    bs, stride = dice.randint(1, 5), dice.randint(1, 6)
    tokens = torch.randint(0, 500, (bs, stride)).int()
    lengths = [dice.randint(1, stride) for _ in range(bs)]
    bonus = torch.zeros(bs, dtype=torch.int64)
    sgl_kernel.fill_bonus_tokens_cpu(tokens, torch.tensor(lengths).int(), bonus, stride)
    equal("bonus", bonus, torch.stack([tokens[i, n - 1] for i, n in enumerate(lengths)]).long())
    none = torch.zeros(bs, dtype=torch.int32)
    refused(ValueError, sgl_kernel.fill_bonus_tokens_cpu, tokens, none, bonus, stride)


@check
def fill_accept_out_cache_loc(dice: random.Random) -> None:
    slots = torch.randint(0, 900, (12,))
    index = [dice.choice([-1, place]) for place in range(12)]
    out = torch.full((12,), -5)
    expected = [int(slots[place]) for place in index if place > -1]
    sgl_kernel.fill_accept_out_cache_loc_cpu(torch.tensor(index).int().view(3, 4), slots, out)
    equal("packed", out, torch.tensor(expected + [-5] * (12 - len(expected))))


@check
def rotate_input_ids(dice: random.Random) -> None:
    lengths = [dice.randint(0, 5) for _ in range(dice.randint(1, 4))]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    ids = [dice.randrange(500) for _ in range(sum(lengths))]
    new = [dice.randrange(500) for _ in lengths]
    chosen = [
        start + dice.randrange(n) if n else 0 for start, n in zip(starts, lengths, strict=True)
    ]
    for select in (None, chosen):
        expected = list(ids)
        for i, (start, n) in enumerate(zip(starts, lengths, strict=True)):
            for offset in range(n - 1):
                expected[start + offset] = ids[start + offset + 1]
            if n:
                expected[start + n - 1 if select is None else select[i]] = new[i]
        found = torch.tensor(ids, dtype=torch.int64)
        sgl_kernel.rotate_input_ids_cpu(
            found,
            torch.tensor(starts),
            torch.tensor(lengths),
            torch.tensor(new).view(-1, 1),
            None if select is None else torch.tensor(select),
        )
        equal("ids", found, torch.tensor(expected, dtype=torch.int64))


# -------------------------------------------------------------------------------------------- trees


def random_tree(dice: random.Random, topk: int, steps: int, n: int) -> tuple[list[int], list[int]]:
    """``(parent list, selected indices)`` as a draft of ``steps`` steps would leave them.

    Step 0 proposes indices ``0..topk-1``; each later step goes on from ``topk`` of the candidates
    so far, and proposes ``topk`` children of each. A child is selected only after its parent.
    """
    parents, level, children, proposed = [-1], list(range(topk)), {}, topk
    for _ in range(1, steps):
        parents += level
        candidates = []
        for parent in level:
            children[parent] = list(range(proposed, proposed + topk))
            candidates += children[parent]
            proposed += topk
        level = sorted(dice.sample(candidates, topk))
    selected: list[int] = []
    frontier = list(range(topk))
    while len(selected) < n - 1:
        choice = frontier.pop(dice.randrange(len(frontier)))
        selected.append(choice)
        frontier += children.get(choice, [])
    return parents, sorted(selected)


def walk_tree(parents: list[int], selected: list[int], topk: int) -> list[int]:
    """The parent of each node; node 0 is the root."""
    found = [-1]
    for index in selected:
        group = index // topk
        found.append(0 if group == 0 else selected.index(parents[group]) + 1)
    return found


def describe(parent: list[int]) -> tuple[list[list[bool]], list[int], list[int], list[int]]:
    """Mask, level, first child and next sibling of the nodes of a tree."""
    n = len(parent)
    mask, level = [], []
    for node in range(n):
        above, at = set(), node
        while at != -1:
            above.add(at)
            at = parent[at]
        mask.append([other in above for other in range(n)])
        level.append(len(above) - 1)
    child = [next((k for k in range(n) if parent[k] == i), -1) for i in range(n)]
    sibling = [
        next((k for k in range(i + 1, n) if parent[i] >= 0 and parent[k] == parent[i]), -1)
        for i in range(n)
    ]
    return mask, level, child, sibling


def tree_of(dice: random.Random) -> tuple[int, int, int]:
    topk, steps = dice.randint(1, 4), dice.randint(1, 4)
    most = topk + (steps - 1) * topk * topk + 1
    return topk, steps, dice.randint(2, min(9, most)) if topk > 1 else steps + 1


@check
def build_tree(dice: random.Random) -> None:
    topk, steps, n = tree_of(dice)
    bs = dice.randint(1, 3)
    trees = [random_tree(dice, topk, steps, n) for _ in range(bs)]
    lengths = [dice.randint(1, 30) for _ in range(bs)]
    described = [describe(walk_tree(*tree, topk)) for tree in trees]

    mask = torch.ones(bs * n * n, dtype=torch.bool)
    positions = torch.empty(bs * n, dtype=torch.int64)
    index, child, sibling = torch.full((3, bs, n), -1)
    parents = torch.tensor([tree[0] for tree in trees]) if steps > 1 else torch.empty(bs, 0)
    build = sgl_kernel.build_tree_kernel_efficient_cpu
    selected = torch.tensor([tree[1] for tree in trees])
    outputs = (mask, positions, index, child, sibling)
    common = (parents.long(), selected, torch.tensor(lengths), *outputs, topk, steps, n)
    build(*common, 1)
    equal("mask", mask.view(bs, n, n), torch.tensor([tree[0] for tree in described]))
    levels = torch.tensor([tree[1] for tree in described])
    equal("positions", positions.view(bs, n), levels + torch.tensor(lengths)[:, None])
    equal("index", index, torch.arange(bs * n).view(bs, n))
    equal("child", child, torch.tensor([tree[2] for tree in described]))
    equal("sibling", sibling, torch.tensor([tree[3] for tree in described]))
    refused(NotImplementedError, build, *common, 0)
    refused(NotImplementedError, build, *common, 2)

    # NGRAM derives the same from the mask
    again = (torch.empty_like(positions), *torch.full((3, bs, n), -9).unbind())
    flat = mask.to(torch.int64)
    reconstruct_indices_from_tree_mask(flat, torch.tensor(lengths), *again, bs, n)
    for name, found, expected in zip(
        ("positions", "index", "child", "sibling"), again, outputs[1:], strict=True
    ):
        equal(f"reconstructed {name}", found, expected)
    refused(
        ValueError,
        reconstruct_indices_from_tree_mask,
        flat[:-1],
        torch.tensor(lengths),
        *again,
        bs,
        n,
    )


@check
def refuse_a_tree_without_a_parent(dice: random.Random) -> None:
    topk = dice.randint(2, 4)
    parents = torch.tensor([[-1, *range(topk)]])
    orphan = torch.tensor([[0, topk + topk]])  # a child of candidate 1, which was not selected
    outputs = (torch.ones(9).bool(), torch.empty(3).long(), *torch.full((3, 1, 3), -1).unbind())
    refused(
        ValueError,
        sgl_kernel.build_tree_kernel_efficient_cpu,
        *(parents, orphan, torch.tensor([4]), *outputs, topk, 2, 3, 1),
    )


@check
def reconstruct_several_roots(dice: random.Random) -> None:
    """The corpus fills a short tree up with nodes that have no ancestors."""
    n = dice.randint(2, 8)
    parent = [-1] + [dice.randint(-1, node - 1) for node in range(1, n)]
    mask, level, child, sibling = describe(parent)
    length = dice.randint(1, 40)
    outputs = tuple(torch.full((4, n), -9).unbind())
    reconstruct_indices_from_tree_mask(
        torch.tensor(mask).flatten(), torch.tensor([length]), *outputs, 1, n
    )
    for found, expected in zip(
        outputs, ([length + at for at in level], list(range(n)), child, sibling), strict=True
    ):
        equal("reconstructed", found, torch.tensor(expected))


@check
def verify_tree(dice: random.Random) -> None:
    topk, steps, n = tree_of(dice)
    bs, most = dice.randint(1, 3), steps + 1
    parent = [walk_tree(*random_tree(dice, topk, steps, n), topk) for _ in range(bs)]
    tokens = [[dice.randrange(3) for _ in range(n)] for _ in range(bs)]
    target = [[dice.randrange(3) for _ in range(n)] for _ in range(bs)]
    predicts, accepted, count = [-1] * (bs * n), [[-1] * most for _ in range(bs)], []
    for b in range(bs):
        at, depth = 0, 0
        while True:
            accepted[b][depth] = b * n + at
            predicts[b * n + at] = target[b][at]
            matching = [k for k in range(n) if parent[b][k] == at and tokens[b][k] == target[b][at]]
            if not matching or depth + 1 == most:
                break
            at, depth = matching[0], depth + 1
        count.append(depth)
    links = [describe(tree) for tree in parent]
    found = (
        torch.full((bs * n,), -1, dtype=torch.int32),
        torch.full((bs, most), -1, dtype=torch.int32),
        torch.zeros(bs, dtype=torch.int32),
    )
    sgl_kernel.verify_tree_greedy_cpu(
        predicts=found[0],
        accept_index=found[1],
        accept_token_num=found[2],
        candidates=torch.tensor(tokens),
        retrive_index=torch.arange(bs * n).view(bs, n),
        retrive_next_token=torch.tensor([tree[2] for tree in links]),
        retrive_next_sibling=torch.tensor([tree[3] for tree in links]),
        target_predict=torch.tensor(target),
    )
    equal("predicts", found[0], torch.tensor(predicts).int())
    equal("accept_index", found[1], torch.tensor(accepted).int())
    equal("accept_token_num", found[2], torch.tensor(count).int())


# ---------------------------------------------------------------------------------------- attention


def attend(q, keys, values, visible, scale, cap):
    """One query ``[heads, d]`` over a list of keys and values, head by head."""
    heads, group = q.shape[0], q.shape[0] // keys[0].shape[0]
    rows = []
    for head in range(heads):
        scores = []
        for key, seen in zip(keys, visible, strict=True):
            score = float(q[head].double() @ key[head // group].double()) * scale
            score = cap * math.tanh(score / cap) if cap else score
            scores.append(score if seen else -math.inf)
        weights = [math.exp(score - max(scores)) for score in scores]
        mixed = sum(
            weight * value[head // group].double()
            for weight, value in zip(weights, values, strict=True)
        )
        rows.append(mixed / sum(weights))
    return torch.stack(rows)


def called(dice: random.Random, arguments: list, place: int) -> list:
    """The arguments of the backend; up to 0.5.19 it passes no scales."""
    return arguments if dice.random() < 0.5 else arguments[:place] + arguments[place + 2 :]


def cache(dice: random.Random, dtype: torch.dtype):
    heads, kv_heads, d, dv = dice.choice([(4, 2, 8, 8), (4, 4, 8, 6), (6, 1, 4, 4)])
    keys = torch.randn(600, kv_heads, d).to(dtype)
    values = torch.randn(600, kv_heads, dv).to(dtype)
    keys[-50:], values[-50:] = math.nan, math.nan  # slots never written
    return heads, d, dv, keys, values


@check
def extend_attention(dice: random.Random) -> None:
    dtype, tolerance = dice.choice([(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
    heads, d, dv, keys, values = cache(dice, dtype)
    slots, rows, _ = table(dice)
    new = [dice.randint(0, 5) for _ in rows]
    lengths = [n + dice.randint(0, 20) for n in new]
    starts = [sum(new[:i]) for i in range(len(new))]
    window = dice.choice([0, 0, 3, 100])
    cap = dice.choice([0.0, 5.0])
    mode = dice.choice(["causal", "all", "tree"])
    trees = [torch.rand(n, n).gt(0.5).tril(-1) | torch.eye(n, dtype=torch.bool) for n in new]
    mask = torch.cat([tree.flatten() for tree in trees]) if mode == "tree" else None
    if mode == "tree":
        window = 0
    q = torch.randn(sum(new), heads, d).to(dtype)
    found = torch.full((sum(new), heads, dv), math.nan, dtype=dtype)
    arguments = [
        *(q, None, None, found, keys, values, 1.0, 1.0, slots, rows),
        *(torch.tensor(lengths), torch.tensor(new).int(), torch.tensor(starts).int()),
        *(max(new), d**-0.5, cap, False, window, None, None, mask, mode != "all"),
    ]
    torch.ops.sgl_kernel.extend_attention_cpu(*called(dice, arguments, 6))
    for i, row in enumerate(rows.tolist()):
        for offset in range(new[i]):
            prefix, at = lengths[i] - new[i], lengths[i] - new[i] + offset
            visible = []
            for key in range(lengths[i]):
                seen = True
                if key >= prefix and mode == "tree":
                    seen = bool(trees[i][offset, key - prefix])
                elif mode != "all":
                    seen = key <= at
                visible.append(seen and (not window or key > at - window))
            used = slots[row, : lengths[i]].tolist()
            expected = attend(
                q[starts[i] + offset],
                [keys[slot] for slot in used],
                [values[slot] for slot in used],
                visible,
                d**-0.5,
                cap,
            )
            close(f"{mode} {dtype}", found[starts[i] + offset], expected, tolerance)
    for place, value in ((6, 0.5), (16, True), (18, rows), (19, torch.ones(heads))):
        wrong = list(arguments)
        wrong[place] = value
        refused(NotImplementedError, torch.ops.sgl_kernel.extend_attention_cpu, *wrong)


@check
def decode_attention(dice: random.Random) -> None:
    dtype, tolerance = dice.choice([(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
    heads, d, dv, keys, values = cache(dice, dtype)
    slots, rows, _ = table(dice)
    bs = len(rows)
    lengths = [dice.randint(1, 30) for _ in rows]
    idle = dice.random() < 0.2
    if idle:
        lengths[0] = 0
    window, cap = dice.choice([0, 4]), dice.choice([0.0, 5.0])
    for row, length in zip(rows.tolist(), lengths, strict=True):
        slots[row, length:] = 599  # beyond its end a row of the table points anywhere
    q = torch.randn(bs, heads, d).to(dtype)
    new = torch.randn(bs, *keys.shape[1:]).to(dtype), torch.randn(bs, *values.shape[1:]).to(dtype)
    stored = dice.random() < 0.3 or idle
    where = torch.stack(
        [slots[row, max(n - 1, 0)] for row, n in zip(rows, lengths, strict=True)]
    ).long()
    found = torch.full((bs, heads, dv), math.nan, dtype=dtype)
    arguments = [
        *(q, keys, values, 1.0, 1.0, found),
        *((None, None) if stored else (new[0].flatten(1), new[1].flatten(1))),
        *(where, torch.empty(0), slots, rows, torch.tensor(lengths), d**-0.5, cap, False),
        *(window, None, None),
    ]
    torch.ops.sgl_kernel.decode_attention_cpu(*called(dice, arguments, 3))
    if not stored:
        equal("stored keys", keys[where], new[0])
        equal("stored values", values[where], new[1])
    for i, row in enumerate(rows.tolist()):
        if lengths[i] == 0:
            equal("an idle request", found[i], torch.zeros_like(found[i]))
            continue
        used = slots[row, : lengths[i]].tolist()
        visible = [not window or key >= lengths[i] - window for key in range(lengths[i])]
        expected = attend(
            q[i], [keys[s] for s in used], [values[s] for s in used], visible, d**-0.5, cap
        )
        close(str(dtype), found[i], expected, tolerance)
    wrong = list(arguments)
    wrong[2] = keys
    refused(NotImplementedError, torch.ops.sgl_kernel.decode_attention_cpu, *wrong)


@check
def build_draft_decode_metadata(dice: random.Random) -> None:
    slots, rows, pool_len = table(dice)
    topk, steps = dice.randint(1, 3), dice.randint(1, 3)
    lengths = [dice.randint(0, 30) for _ in rows]
    expected = torch.zeros(len(rows) * topk, pool_len).int()
    for i, row in enumerate(rows.tolist()):
        for branch in range(topk):
            line = expected[i * topk + branch]
            for position in range(lengths[i]):
                line[position] = slots[row, position]
            for step in range(steps):
                line[lengths[i] + step] = slots[row, lengths[i] + branch * steps + step]
    build = sgl_kernel.build_draft_decode_metadata_cpu
    equal("table", build(slots, rows, torch.tensor(lengths), topk, steps, pool_len), expected)
    full = torch.full((len(rows),), pool_len)
    refused(ValueError, build, slots, rows, full, topk, steps, pool_len)


def main() -> None:
    results: dict[str, str | None] = {}
    for function in CHECKS:
        results[function.__name__] = None
        for seed in range(ROUNDS):
            torch.manual_seed(seed)
            try:
                function(random.Random(seed))
            except Exception:
                results[function.__name__] = f"seed {seed}: {traceback.format_exc()}"
                break
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
