"""A partner's files, in whatever format they come, as blocks of checked events."""
