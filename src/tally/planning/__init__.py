"""Planning: which offsets a batch or a replay reads, and what blocks a partition. Pure.

Decides from values alone: :mod:`tally.counting.plan` and :mod:`tally.replay.preview` bring them
from the ledger and from Kafka, and the ledger records what was decided.
"""
