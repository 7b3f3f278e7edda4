"""The ground floor: diagnostics, files, targets, requests, the cache. It does not depend on networks or drivers."""
