"""The engine check: a judge runs a plan's command through its release's own validation."""
