"""Late data: check finished days, run late ones again, compare the versions, and notify people."""
