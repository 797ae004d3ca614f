"""The report: one static site from the document of ``depthlaw verify``."""
