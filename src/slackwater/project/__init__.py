"""A project on disk: its files, definitions, schedules, environments and history."""
