"""Watching running engines: readings, their history, and problems."""
