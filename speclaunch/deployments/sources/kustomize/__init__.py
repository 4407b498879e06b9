"""Kustomizations, composed from their files without running kustomize.

`compose.py` begins. Every value keeps the place where it was written: in a base, in a patch, in the
kustomization itself. What is not understood is told, and then nothing is said of the result.
"""
