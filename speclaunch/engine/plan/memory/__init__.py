"""Memory use of each part of a deployment, by engine version."""
