"""The engine's second opinion: what a release itself says of a deployment, and what that means."""
