"""Clocks and energy: clock trees, legal configurations, what running costs, and the choice under a time budget."""
