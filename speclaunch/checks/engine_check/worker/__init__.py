"""The worker: runs in an engine's interpreter (3.10 or newer) and imports nothing of speclaunch.

`start.py` is its program. Standard input has lines of JSON: first the settings, then a query a
line. Standard output has a line that describes the engine, then a line with the verdict of each
query. Each query runs in a forked child, which isolates it from the engine's state of earlier ones.
"""
