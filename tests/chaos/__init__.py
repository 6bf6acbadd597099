"""The fault campaign: every component is broken on purpose, and the counts are checked."""
