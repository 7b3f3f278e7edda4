"""Cost of running a plan, and the choice of clocks under a time budget."""
