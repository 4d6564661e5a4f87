"""Runs that wait for their inputs: which days may wait, and what their inputs are."""
