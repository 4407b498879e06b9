"""Kustomizations, composed from their files without running kustomize.

The entry point is `compose.py`. Every value has the place where it was written: in a base, in a
patch, in the kustomization itself. Parts that are not understood are reported, and then the result
is not checked.
"""
