"""From C with masks to the bfGroup dialect, with a proof that both make the same accesses."""
