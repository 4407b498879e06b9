"""The CPU engine: the real SGLang serving without a GPU, with tiny models.

``install``      installs the engine
``programs``     writes each model on first use
``shim/``        replaces GPU packages; on the PYTHONPATH of the engine's processes
``make_models``  writes a tiny model; run by the engine's interpreter

The engine has its own interpreter and packages; speclaunch imports none of them.
"""
