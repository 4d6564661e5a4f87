"""The ledger: an Iceberg table with every late input and what was done about it."""
