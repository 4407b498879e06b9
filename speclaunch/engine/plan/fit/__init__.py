"""Search for settings that fit into memory at the least loss."""
