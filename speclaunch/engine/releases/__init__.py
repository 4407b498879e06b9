"""Server arguments, renames and command lines of all SGLang releases."""
