"""Output for users: formats results, and computes none."""
