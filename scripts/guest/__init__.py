"""Tests of the real program in a guest: kernels and machines on the host, cases inside. See scripts/test-guest."""
