"""Use cases: one function for each thing that an operator or a scheduler can ask of Tally.

Each takes a request and returns a view; both are frozen, and a view serialises to the published
JSON. May import everything below the edges; never the command line, Airflow or HTTP.
"""
