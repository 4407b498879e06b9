"""Untrusted input: repositories, files, and what speclaunch does with them."""
