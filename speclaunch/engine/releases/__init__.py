"""Server arguments, renames and command lines of every SGLang release."""
