"""Preparations for SGLang 0.5.23 to serve without a GPU, one module per need.

``import_hook``     runs the others around the first import of what they prepare
``torchvision_ops`` declares two operators whose compiled half is in the CUDA build only
``triton_stub``     the absent ``triton``: SGLang's own stand-in for machines without it
``cuda_sync``       ``torch.cuda.synchronize`` as a no-op, for the models that always call it
``platform_facts``  preserves the attention backend that can verify a draft on a CPU
``chain``           runs the ``sitecustomize`` that this one hides

speclaunch never imports this package: it runs in the processes of the engine.
"""
