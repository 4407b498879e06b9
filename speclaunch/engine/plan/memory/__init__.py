"""Memory that each part of a deployment uses, by engine version."""
