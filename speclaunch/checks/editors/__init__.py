"""The language server: lint findings while the user types."""
