"""The clusters a run can drive, all behind harness.protocols.Cluster."""
