"""The rules and the resolution against the engine's own verdicts."""
