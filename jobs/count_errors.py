"""Spark entry point: count one planned batch and commit it.

Under Airflow the minute DAG submits it. By hand, with a batch id that ``tally plan`` printed::

    spark-submit --driver-class-path '<jars>/*' jobs/count_errors.py --batch 42
"""

from tally.job import main

if __name__ == "__main__":
    main()
