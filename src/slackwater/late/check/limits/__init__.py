"""What limits re-runs: their number, their cost and their budget."""
