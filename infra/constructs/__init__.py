"""Building blocks: each makes one thing whole, with its log group and its exact grants."""
