"""Proof that speculation leaves answers unchanged, from the plain server's logprobs."""
