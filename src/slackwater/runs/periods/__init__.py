"""The states of the periods of sources: computed from facts when these change, stored, and announced."""
