"""Find the release that broke a deployment, and check if a deployment can change releases."""
