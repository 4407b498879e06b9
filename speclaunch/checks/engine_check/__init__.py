"""The engine check: runs a release's own validation on the command of a plan."""
