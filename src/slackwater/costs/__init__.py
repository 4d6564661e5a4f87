"""What a run costs: prices of AWS by region, and the cost of what a run has used."""
