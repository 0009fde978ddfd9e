"""Workloads: the ops that clients run, and what their outcomes prove."""
