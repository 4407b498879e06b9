"""Finds the SGLang server commands in anybody's files, with the place of every word.

Nothing is ever run.  What cannot be evaluated from the file alone is kept as it is written, and
says why.
"""
