"""Read the SGLang server commands in any file, with the place of every token.

Nothing is ever run. Text that cannot be evaluated from the file alone is unchanged, and the
reason is recorded.
"""
