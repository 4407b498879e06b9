"""Does speculation pay: engines started, loaded by their own generator, compared round by round."""
