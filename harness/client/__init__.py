"""The client of record: it sends each request once, and classifies the result as ok, fail or info."""
