"""Steps that read rows from outside of a pipeline."""
