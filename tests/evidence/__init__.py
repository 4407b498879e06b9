"""What the real engine does with deployments that the rules speak about: cases, runs, pages."""
