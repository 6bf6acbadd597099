"""The steps of a pipeline: plan, run, replay, prune, audit, recount.

May import every room below: planning, the drivers, the ledger and deliveries. Never the edges.
"""
