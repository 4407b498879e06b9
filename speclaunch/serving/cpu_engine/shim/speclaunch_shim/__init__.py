"""Patches in the engine's processes that let SGLang serve without a GPU; one module per patch.

``import_hook``      runs the others around the first import of the modules that they patch
``torchvision_ops``  declares two operators that are compiled only in the CUDA build
``triton_stub``      installs SGLang's substitute for a missing ``triton``
``cuda_sync``        makes ``torch.cuda.synchronize`` a no-op, for models that always call it
``platform_facts``   keeps the attention backend that can verify a draft on a CPU
``nixl_memory``      lets NIXL register a KV cache in host memory
``verify_lengths``   corrects the sequence lengths in verification (0.5.16 to 0.5.18)
``chain``            runs the ``sitecustomize`` that this package hides
"""
