"""The CPU engine: the real SGLang, serving without a GPU, and the tiny models it serves.

``install``      builds it, once, and its models on first use
``shim/``        what stands in for a GPU's packages, on PYTHONPATH of the engine's processes
``make_models``  writes a tiny model; run by the engine's interpreter

The engine has an interpreter and packages of its own. speclaunch speaks to it as a process and
imports nothing of it.
"""
