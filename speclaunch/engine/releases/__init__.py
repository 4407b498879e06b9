"""Releases of SGLang: server arguments, renames, command lines."""
