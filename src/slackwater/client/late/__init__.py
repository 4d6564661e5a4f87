"""Late data: monitoring, days on hold, days before the window, proposed thresholds."""
