"""Guards that are taken out one at a time: each time some test must turn red."""
