"""Commands for raw data: sending and fetching it, what was rejected, and SQL."""
