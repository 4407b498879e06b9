"""Deployments of several parts, mistakes between their parts, and whether lint finds them."""
