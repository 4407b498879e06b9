"""The engine check: a plan as a command for its release, and that release's verdict."""
