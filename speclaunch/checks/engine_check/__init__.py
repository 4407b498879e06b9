"""The engine check: a plan as a command for its release, and the answer of its own validation."""
