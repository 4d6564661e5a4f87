"""Commands for the deployment, on AWS or on this machine."""
