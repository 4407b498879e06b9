"""Runs inside the CPU engine as its `sitecustomize`: prints the exact numbers of its pools, which
the log rounds to hundredths of a GB. It changes none of them."""

import importlib.machinery
import os
import sys

KV = "sglang.srt.mem_cache.kv_cache_configurator"
POOL = "sglang.srt.mem_cache.memory_pool"


def _configurator(module):
    available = module.get_available_gpu_memory
    configurator = module.KVCacheConfigurator
    profile = configurator._profile_available_bytes

    def measured(*words, **named):
        value = available(*words, **named)
        print("MEASURED available", repr(value), flush=True)
        return value

    def profiled(self, before):
        print("MEASURED before", repr(before), flush=True)
        rest = profile(self, before)
        print("MEASURED rest", rest, flush=True)
        return rest

    module.get_available_gpu_memory = measured
    configurator._profile_available_bytes = profiled


def _pool(module):
    log = module.KVCache._finalize_allocation_log
    make = module.ReqToTokenPool.__init__

    def logged(self, tokens):
        sizes = self.get_kv_size_bytes()
        sizes = sizes if isinstance(sizes, tuple) else (sizes,)
        print("MEASURED pool", tokens, sum(int(size) for size in sizes), self.dtype, flush=True)
        return log(self, tokens)

    def made(self, *words, **named):
        make(self, *words, **named)
        rows, columns = self.req_to_token.shape
        print("MEASURED slots", rows, columns, flush=True)

    module.KVCache._finalize_allocation_log = logged
    module.ReqToTokenPool.__init__ = made


WANTED = {KV: _configurator, POOL: _pool}


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in WANTED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute, change = spec.loader.exec_module, WANTED[name]

        def changed(module):
            execute(module)
            change(module)

        spec.loader.exec_module = changed
        return spec


if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    sys.meta_path.insert(0, _Finder())
