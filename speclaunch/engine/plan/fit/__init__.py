"""Settings that fit, with the least loss."""
