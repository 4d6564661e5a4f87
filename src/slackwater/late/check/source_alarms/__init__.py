"""What the alarms of a source measure: silence, and unusually many rejected events."""
