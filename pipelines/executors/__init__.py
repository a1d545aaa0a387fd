"""Where stages run: as forks on this machine, on a Ray cluster, or by Slurm."""
