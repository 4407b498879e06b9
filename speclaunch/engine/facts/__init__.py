"""Facts about this machine and its checkpoints, gathered once."""
