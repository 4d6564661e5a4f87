"""A run: one pipeline, one date, one input manifest."""
