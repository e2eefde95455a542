"""Clustering: files are rewritten together, larger and in order (Hudi: ``ClusteringPlanStrategy``)."""
