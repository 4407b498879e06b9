"""A recipe: composed, located, validated."""
