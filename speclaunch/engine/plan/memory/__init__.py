"""How much memory each part of a deployment takes, by engine version."""
