"""From what partners send to Parquet objects in partitions by source, date and hour."""
