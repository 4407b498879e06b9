"""SPL8xx: addresses, keys, and deployments that belong together."""
