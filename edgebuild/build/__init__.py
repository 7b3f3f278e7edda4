"""Entries for build systems: the no-change check, request files, and the modules of SCons and CMake."""
