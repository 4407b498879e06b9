"""Resolution of arguments, one module per concern. `resolve.py` orders the steps."""
