"""Setting Tally up: the configuration, line formats that are tried, tables, and Airflow's files."""
