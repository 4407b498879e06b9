"""The resolution of arguments, one module a concern; `steps.py` has their order."""
