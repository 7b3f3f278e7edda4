"""The ground floor: diagnostics, files, targets, requests, the cache. Knows no networks and no drivers."""
