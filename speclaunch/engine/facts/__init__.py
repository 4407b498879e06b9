"""Facts about a deployment's checkpoints, engine and hardware."""
