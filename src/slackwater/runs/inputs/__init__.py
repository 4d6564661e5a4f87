"""The inputs of a run: lists the objects of a day, freezes them as a manifest, and compares two manifests."""
