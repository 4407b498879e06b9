"""The engine's log: lines, marks and phases."""
