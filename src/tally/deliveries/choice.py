"""Which delivery a pipeline has."""

from tally.config.pipeline import Pipeline
from tally.deliveries.contract import Delivery
from tally.deliveries.transactional import TransactionalBatch


def delivery_of(pipeline: Pipeline) -> Delivery:
    """The delivery that a pipeline is configured to have; another one is added here."""
    return TransactionalBatch(pipeline)
