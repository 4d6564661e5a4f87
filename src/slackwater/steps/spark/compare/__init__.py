"""The comparison of two versions of a day."""
