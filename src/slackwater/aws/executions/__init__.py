"""Executions of state machines: their start, their progress, their logs and what they used."""
