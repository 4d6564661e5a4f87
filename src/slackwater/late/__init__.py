"""Late data: noticed, weighed, compared with what was published, and told."""
