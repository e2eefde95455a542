"""Clustering: rewriting files together, larger and sorted (Hudi: ``ClusteringPlanStrategy``)."""
