"""Source definitions: what a user declares about a partner feed, and what follows from it."""
