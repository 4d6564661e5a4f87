"""From what partners send to partitions by source, date and hour."""
