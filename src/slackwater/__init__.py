"""Slackwater: partner data that arrives late, processed by the day, and processed again when it changes."""

__version__ = "0.1.0"
