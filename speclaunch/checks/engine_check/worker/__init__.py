"""The worker: run by an engine's interpreter (3.10 or newer), it imports nothing of speclaunch.

`start.py` is its program. Standard input is lines of JSON: first the setting, then one question a
line; each line of standard output is what the engine says of itself, then one verdict a question.
Every question is asked in a forked child, so that nothing the engine remembers reaches the next.
"""
