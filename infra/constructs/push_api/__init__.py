"""The API that partners push events to, and the queue behind it."""
