"""Measures cold program starts, a make, a boot and scarce memory on a modelled disk: see scripts/bench-starts."""
