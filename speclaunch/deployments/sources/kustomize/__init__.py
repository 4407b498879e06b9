"""Kustomizations, composed from their files without running kustomize.

The entry point is `compose.py`. Every value has its place in a base, a patch or the kustomization.
Unsupported parts are reported, and then the result is not checked.
"""
