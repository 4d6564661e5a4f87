"""The stacks of a deployment, and what has to happen before they are changed or deleted."""
