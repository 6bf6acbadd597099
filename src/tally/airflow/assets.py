"""The assets that Airflow shows: the topics that a pipeline reads and its result table.

Their URIs name no server: an address would differ between environments, and Airflow stores and
shows URIs in the clear.
"""

from airflow.sdk import Asset

from tally.config.pipeline import Pipeline


def topic_assets(pipeline: Pipeline) -> list[Asset]:
    """One asset for each topic of the pipeline."""
    return [
        Asset(name=f"kafka_{topic}", uri=f"tally://kafka/{topic}", group="tally")
        for topic in pipeline.topics
    ]


def result_asset(pipeline: Pipeline) -> Asset:
    """The result table; its events carry the batch, its ranges and its counts."""
    table = pipeline.table
    return Asset(name=f"tally_{table}", uri=f"tally://mysql/{table}", group="tally")
