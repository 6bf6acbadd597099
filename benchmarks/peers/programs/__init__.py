"""Programs of peers that need an environment of their own (:mod:`benchmarks.peers.isolated`)."""
