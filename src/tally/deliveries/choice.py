"""The choice of a pipeline's delivery."""

from tally.config.pipeline import Pipeline
from tally.deliveries.contract import Delivery
from tally.deliveries.published_rows import PublishedRows
from tally.deliveries.transactional import TransactionalBatch


def delivery_of(pipeline: Pipeline) -> Delivery:
    """The delivery of a pipeline. A new kind of delivery is added here."""
    return TransactionalBatch(pipeline) if pipeline.rows_view is None else PublishedRows(pipeline)
