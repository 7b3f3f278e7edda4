"""Analysis of a driver's code: control and data flow, accesses to fields, which of them conflict."""
