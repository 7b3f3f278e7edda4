"""Checks of a plan before C is printed: replayed on tagged bytes, and run on values. They trust no planner."""
