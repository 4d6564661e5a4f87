"""Write checked events to their partitions, and rejected events under `sideline/`."""
