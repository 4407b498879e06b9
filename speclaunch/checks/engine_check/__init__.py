"""The engine check: run a plan's command through the validation of its release, by a judge."""
