"""What users read. Knows what happened, nothing of how it came about."""
