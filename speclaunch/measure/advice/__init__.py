"""Advice: checkpoint facts, drafts, new recipes, and the contents of `speclaunch plan`."""
