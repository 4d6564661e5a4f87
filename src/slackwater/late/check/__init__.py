"""Checks finished days for late data, and decides what to do about each."""
