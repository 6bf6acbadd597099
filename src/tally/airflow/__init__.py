"""Tally under Airflow: the DAGs, their tasks, and the console.

``dags/tally_pipelines.py`` and ``plugins/tally_plugin.py`` only wire and register this package. A
module of a DAG has the DAG, its tasks and their work, from top to bottom. Airflow imports these
modules whenever it parses DAGs, so they import none of Spark, Kafka and MySQL: tasks and pages
import these when they run. Only ``telemetry`` and the console import them at once.
"""
