"""Kustomizations, composed from their files without running kustomize.

The entry point is `compose.py`. Every value keeps its place: in a base, in a patch, or in the
kustomization itself. Unsupported parts are reported, and the result is then not checked.
"""
