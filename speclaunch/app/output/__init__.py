"""Output for users: presentation of results, independent of their computation."""
