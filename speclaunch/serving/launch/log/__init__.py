"""What the engine prints: its lines, the marks of its course among them, its last word."""
