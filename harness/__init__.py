"""floodmark's frame: what an op is, how a run goes, where it is kept."""

__version__ = "0.1.0"
