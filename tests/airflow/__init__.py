"""Tally under Airflow."""
