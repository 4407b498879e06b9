"""The settings that fit, with the least loss."""
