"""Stage slurm_login: login pods of Slurm run the planned revision, replaced with the knowledge of those who are logged in."""
