"""Engines that run stages: as forks on this machine, on a Ray cluster, or by Slurm."""
