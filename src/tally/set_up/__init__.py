"""Setting Tally up: the configuration, line formats that are tried, and tables."""
