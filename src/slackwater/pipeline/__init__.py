"""Pipelines: a graph of steps in YAML, its stages, and the state machine that runs them."""
