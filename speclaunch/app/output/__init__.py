"""Output for users: presents results, without knowledge of how they were computed."""
