"""Tables of papers, and the networks and layers that they are about."""
