"""Handing a frame from one stage to the next: Arrow IPC files behind a small reference."""
