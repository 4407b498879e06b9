"""Proof that speculation does not change answers, based on the plain server's logprobs."""
