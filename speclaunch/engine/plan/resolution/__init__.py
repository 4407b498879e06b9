"""The resolution of arguments, one module a concern; `plan/resolve.py` has their order."""
