"""Compares two published versions of a day, and notifies people of what has changed."""
