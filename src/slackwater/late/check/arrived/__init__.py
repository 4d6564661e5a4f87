"""Checks of the days whose inputs have just changed."""
