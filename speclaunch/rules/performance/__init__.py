"""SPL7xx: what makes speculation slow, or a capture fail."""
