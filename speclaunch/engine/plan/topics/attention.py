"""Attention backends: arguments, names, and defaults that several steps share."""

from __future__ import annotations

BOTH = "attention_backend"
PREFILL = "prefill_attention_backend"
DECODE = "decode_attention_backend"
PHASES = (PREFILL, DECODE)
"""Arguments for the backend of a single phase. If one is unset, `BOTH` applies."""
BACKENDS = (BOTH, DECODE, PREFILL)
DRAFT = "speculative_draft_attention_backend"

RENAMED = {"compressed": "dsv4", "tokenspeed_mla": "cutedsl_mla"}
"""Deprecated names of backends (`_handle_deprecated_args`, 0.5.23
arg_groups/serving_hook.py:305)."""
RENAMED_IN = ">=0.5.23"
RENAMED_EARLY, RENAMED_EARLY_IN = ("compressed",), ">=0.5.12"
"""Deprecated names that earlier releases also replace (0.5.12.post1 server_args.py:1128)."""
BEFORE_RENAMED = "<0.5.23"

OWN_CPU_DEFAULTS = ">=0.4.10"
"""Releases with separate defaults for a CPU: intel_amx if it has AMX, else torch_native; PyTorch
for sampling (0.5.23 arg_groups/platform_hook.py:172). Earlier releases: torch_native."""
FA3_GIVES_WAY = ">=0.5.1,<0.5.14"
"""Releases in which fa3 cannot decode with a hierarchical cache (0.5.10 server_args.py:2929, 0.5.4
:1475)."""
