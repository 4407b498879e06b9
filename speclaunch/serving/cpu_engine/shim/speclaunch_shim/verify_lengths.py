"""Verify drafts with the lengths that SGLang computed; 0.5.16 to 0.5.18 ignore them.

``forward_extend`` of ``srt/layers/attention/intel_amx_backend.py`` replaces them with the lengths
without the draft tokens, so the target does not see the last tokens of its context. 0.5.19 fixes
this bug. On other passes both lengths are equal.
"""

import inspect
import sys
from typing import Any

BACKEND = "sglang.srt.layers.attention.intel_amx_backend"
_LINE = "        seq_lens = forward_batch.seq_lens\n"


def install() -> None:
    """Patch the imported module ``BACKEND`` if it has the bug."""
    backend = sys.modules[BACKEND].IntelAMXAttnBackend
    extend = backend.forward_extend
    if _LINE not in inspect.getsource(extend):
        return

    def forward_extend(
        self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        before = forward_batch.seq_lens
        forward_batch.seq_lens = self.extend_metadata[0]
        try:
            return extend(self, q, k, v, layer, forward_batch, *args, **kwargs)
        finally:
            forward_batch.seq_lens = before

    backend.forward_extend = forward_extend
