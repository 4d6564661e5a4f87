"""Sends events to the push API, as a partner does."""
