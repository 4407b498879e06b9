"""`lint --fix`: the fixes of findings applied to their files."""
