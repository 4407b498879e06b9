"""Mistakes between the parts of deployments: a sample of the stored campaign, and its table."""
