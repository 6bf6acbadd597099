"""Guards that are removed one at a time; each time a test must fail."""
