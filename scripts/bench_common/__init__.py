"""What the measurements in scripts/ share: programs, mounts, a dcd that is served, a C project."""
