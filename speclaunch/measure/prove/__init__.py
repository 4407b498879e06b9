"""Whether speculation changes answers, judged by the plain server's own logprobs."""
