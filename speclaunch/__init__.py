"""A declarative launcher and validator for speculative-decoding deployments of SGLang."""

__version__ = "0.1.0"
