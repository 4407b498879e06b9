"""What runs in the engine's interpreter, and imports nothing of ours."""
