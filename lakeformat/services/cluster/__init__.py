"""Clustering: rewriting files into larger or sorted files (Hudi: ``ClusteringPlanStrategy``)."""
