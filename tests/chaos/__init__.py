"""The fault campaign: everything that may break is broken, and the counts are checked."""
