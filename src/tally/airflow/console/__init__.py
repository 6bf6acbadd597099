"""The console: pages in Airflow that show the ledger and start what changes it.

``app`` has the routes, ``pages`` and ``steering_pages`` compose what a page shows from the use
cases, ``runs`` reads Airflow's own database, ``drawing`` makes the answers, a bounded number at a
time, ``metrics`` answers Prometheus; ``templates`` and ``static`` are what the browser gets.
Nothing here changes anything: a change is a run of a DAG, which the browser asks Airflow's own API
for, as the signed-in user. Only Airflow's API server imports it.
"""
