"""What SGLang 0.5.23 needs before it can serve without a GPU, one module per need.

``import_hook``     runs the others around the first import of what they prepare
``torchvision_ops`` declares two operators whose compiled half is in the CUDA build only
``triton_stub``     the absent ``triton``: SGLang's own stand-in for machines that have none
``cuda_sync``       ``torch.cuda.synchronize`` as a no-op, for the models that call it always
``platform_facts``  keeps the attention backend that can verify a draft on a CPU
``chain``           runs the ``sitecustomize`` that this one hides

This package is never imported by speclaunch: it lives in the processes of the engine.
"""
