"""Steps that turn frames into a frame."""
