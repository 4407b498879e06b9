"""Readers that find SGLang server commands in users' files, with the place of every word.

Nothing is executed. Text that cannot be evaluated from the file alone remains unchanged, with a
reason.
"""
