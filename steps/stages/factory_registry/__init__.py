"""Stage factory_registry: the registry of a factory runs on a volume, and takes and gives images on every node."""
