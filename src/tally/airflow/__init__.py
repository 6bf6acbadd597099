"""Tally under Airflow: the DAGs, their tasks, and a status page.

``dags/tally_pipelines.py`` and ``plugins/tally_plugin.py`` only wire and register this package.
The modules whose names end with ``work``, and the status pages, import Kafka and MySQL: tasks and
pages import them when they run. Everything else is imported while DAGs are parsed, and imports none
of Spark, Kafka and MySQL.
"""
