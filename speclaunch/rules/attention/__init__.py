"""SPL3xx: attention backends of the target and of the draft."""
