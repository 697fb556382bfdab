"""Stage factory_argo: Argo Workflows runs with the settings of a factory, and carries out released templates alone."""
