"""The worker, run by an engine's interpreter (3.10 or newer). It does not import speclaunch.

`start.py` is its program. Standard input is lines of JSON: first the setting, then one question per
line. Standard output is a report about the engine, then a verdict for each question. A forked child
answers each question, so no engine state is left for the next question.
"""
