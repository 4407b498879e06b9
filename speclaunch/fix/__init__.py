"""Changes to a user's file that leave everything else of it as it is."""
