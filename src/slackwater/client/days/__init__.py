"""A pipeline's days: runs, their logs and costs, published versions, backfills."""
