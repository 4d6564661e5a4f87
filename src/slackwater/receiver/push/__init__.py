"""Push: partners POST batches of events to the HTTP API."""
