"""Output of the engine: its lines, their marks of progress, its last error."""
