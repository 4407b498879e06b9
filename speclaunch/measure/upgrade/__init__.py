"""One page on whether a deployment can move to another release."""
