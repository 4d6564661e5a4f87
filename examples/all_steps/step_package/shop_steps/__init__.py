"""The steps of the shops' own."""
