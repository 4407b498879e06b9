"""The CPU kernels of SGLang in plain torch, replacing the CPU build of sgl-kernel.

PyPI has only the CUDA build. This package has the functions that SGLang 0.5.16 to 0.5.23 needs on a
CPU to serve a dense or mixture-of-experts decoder, with or without a draft:

``attention``     implements the ``intel_amx`` backend's two kernels, and builds draft metadata
``cache_locs``    writes and reads the request-to-token table, and moves KV rows
``draft_tokens``  updates bonus tokens, accepted slots and input ids
``tree``          builds a draft tree and verifies it greedily
``speculative``   reconstructs NGRAM's draft trees from their masks

The functions write into their argument tensors, like the compiled kernels. They raise
``NotImplementedError`` for unsupported input and ``ValueError`` for invalid input.
``convert_weight_packed`` is omitted on purpose. Its absence tells SGLang that there are no AMX
layers (``_is_intel_amx_backend_available``), and all layers use ``forward_native``.
"""

import torch

from sgl_kernel.attention import (
    build_draft_decode_metadata_cpu,
    decode_attention_cpu,
    extend_attention_cpu,
    with_optional_scales,
)
from sgl_kernel.cache_locs import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
)
from sgl_kernel.draft_tokens import (
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__version__ = "0.4.10+speclaunch.serving.cpu_engine"

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

# `IntelAMXAttnBackend.__init__` reads these two from the operator namespace. Plain attributes
# suffice, because nothing traces or exports them.
torch.ops.sgl_kernel.decode_attention_cpu = with_optional_scales(decode_attention_cpu)
torch.ops.sgl_kernel.extend_attention_cpu = with_optional_scales(extend_attention_cpu)
