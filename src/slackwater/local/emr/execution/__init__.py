"""How job runs are executed on this machine."""
