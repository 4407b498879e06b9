"""SGLang as versions have it: server arguments, renames, command lines."""
