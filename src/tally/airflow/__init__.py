"""Tally under Airflow: the DAGs, their tasks, and a status page.

``dags/tally_pipelines.py`` and ``plugins/tally_plugin.py`` only wire and register this package.
Everything but :mod:`tally.airflow.work` and :mod:`tally.airflow.status` may be imported while DAGs
are parsed: none of it imports Spark, Kafka or MySQL.
"""
