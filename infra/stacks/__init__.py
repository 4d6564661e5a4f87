"""The stacks: storage, receiver, processing, late, monitoring and, unless nothing is scheduled, schedule."""
