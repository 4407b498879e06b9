"""Recipes: lookup, composition, validation."""
