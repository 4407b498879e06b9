"""Memory use of a deployment, by engine version."""
