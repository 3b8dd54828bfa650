"""Measures disks in an object store, and on the network, at a distance: see scripts/bench-store."""
