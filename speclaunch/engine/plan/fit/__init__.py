"""Search for settings that fit in memory with the smallest loss."""
