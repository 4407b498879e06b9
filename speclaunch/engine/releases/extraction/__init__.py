"""Reads the arguments and variables of one SGLang release from its source text.

Nothing here imports or runs SGLang: every module works on :mod:`ast` trees, which need neither
torch nor a GPU. `release.py` is the entry point.
"""
