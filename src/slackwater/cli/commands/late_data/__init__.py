"""Commands for late data: monitoring, days on hold, thresholds."""
