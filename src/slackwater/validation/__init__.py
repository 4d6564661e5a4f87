"""Check a project and report all of its problems at once, each with file, line and column."""
