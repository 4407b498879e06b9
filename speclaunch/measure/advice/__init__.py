"""Advice of `plan`, `init`, `drafts` and `models`: plans, comparisons, new recipes, facts."""
