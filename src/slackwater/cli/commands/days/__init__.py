"""Commands for a pipeline's days: running them, and what their runs did."""
