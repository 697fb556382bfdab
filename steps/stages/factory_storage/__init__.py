"""Stage factory_storage: the shared folder of a factory is one folder on every node."""
