"""Work on definitions and steps on this machine: write them, run one step, try a pipeline again after each change."""
