"""The engine's own validation, asked in a process apart: no GPU, no network, no model's code."""
