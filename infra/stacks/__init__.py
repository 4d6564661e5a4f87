"""The three stacks: storage, receiver, processing."""
