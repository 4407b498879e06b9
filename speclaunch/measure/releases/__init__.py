"""Releases: which release broke a deployment, and whether a deployment can move to another."""
