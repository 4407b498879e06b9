"""What an engine died of, read off its log."""
