"""The harness of floodmark: it makes runs, records them, and has them judged."""

__version__ = "0.1.0"
