"""The exchange of DataFrames between stages: Arrow IPC files behind a small reference."""
