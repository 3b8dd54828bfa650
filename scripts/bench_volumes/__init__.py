"""Measures volumes of modelled disks against plain RAID: see scripts/bench-volumes."""
