"""What runs cost, and when it is recorded."""
