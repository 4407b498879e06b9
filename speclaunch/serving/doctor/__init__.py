"""Inspection of this machine before an engine starts on it, with a report of problems."""
