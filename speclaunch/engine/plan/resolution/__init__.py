"""Resolution of arguments, one module per concern; `plan/resolve.py` sets their order."""
