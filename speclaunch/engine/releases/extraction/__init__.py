"""Extraction of the arguments and variables of an SGLang release from its source text.

Nothing here imports or runs SGLang. Every module works on :mod:`ast` trees, so a release can be
read without torch or a GPU. The entry point is :mod:`speclaunch.engine.releases.extract`.
"""
