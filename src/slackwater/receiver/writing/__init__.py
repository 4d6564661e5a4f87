"""Writing checked events to partitions, and rejected ones to the `sideline/` prefix."""
