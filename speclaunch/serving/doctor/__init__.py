"""Looks at this machine before an engine starts on it, and says what is not fine."""
