"""Alarms, composite alarms, and the topics that they notify."""
