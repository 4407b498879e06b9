"""Checks of this machine before an engine starts on it (`speclaunch doctor`)."""
