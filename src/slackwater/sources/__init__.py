"""Source definitions: what a user declares about a partner feed, and the schemas and names that follow from it."""
