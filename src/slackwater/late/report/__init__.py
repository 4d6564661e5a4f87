"""The report about a comparison: its sections, charts and HTML page."""
