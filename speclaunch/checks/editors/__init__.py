"""Language server that shows lint findings while the user types."""
