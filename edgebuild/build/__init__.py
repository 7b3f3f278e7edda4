"""Entries for build systems: the no-change check, request files, and the doors of SCons and CMake."""
