"""Products of a driver: C, headers, SVD, SystemRDL, SystemC, report."""
