"""Use cases: one function for each thing that an operator or a scheduler can ask of Tally.

Each takes a context and what is asked for, and returns a view. Requests and views are frozen, and
a view serialises to the published JSON (:func:`tally.views.document`). May import everything
below the edges; never the command line or Airflow.
"""
