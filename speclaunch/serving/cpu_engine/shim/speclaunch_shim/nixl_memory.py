"""Let prefill transfer its KV cache to decode without a GPU, if NIXL is installed.

SGLang registers the KV cache as ``VRAM`` (``srt/disaggregation/nixl/conn.py``
``register_buffer_to_engine``), which UCX refuses for host memory: ``VRAM memory is detected as host
by UCX``. On a CPU engine, ``VRAM`` and ``DRAM`` both mean host memory.
"""

import sys
from typing import Any


def install(name: str) -> None:
    """Patch the agent class in the imported module ``name``."""
    agent = sys.modules[name].nixl_agent
    made = agent.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        self.nixl_mems["VRAM"] = self.nixl_mems["DRAM"]

    agent.__init__ = init
