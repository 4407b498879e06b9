"""Memory of each part of a deployment, by engine version."""
