"""Releases: the one that broke a deployment, and whether a deployment can move to another."""
