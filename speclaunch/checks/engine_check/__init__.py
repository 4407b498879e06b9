"""The engine check: a plan as a command for its release, and the result of its own validation."""
