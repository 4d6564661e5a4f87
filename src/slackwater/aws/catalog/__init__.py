"""The Glue catalogue: published tables, raw partitions and the ledger."""
