"""Facts about the machine, engines and checkpoints, gathered once."""
