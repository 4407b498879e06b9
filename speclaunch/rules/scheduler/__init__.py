"""SPL2xx: SpecV2, overlap scheduling, data and pipeline parallelism."""
