"""Views of reports: pictures, pages, traces and comparisons. Nothing here knows plans."""
