"""Compares two published versions of a day with Spark."""
