"""Check files: find their deployments, run the rules and apply ignore comments."""
