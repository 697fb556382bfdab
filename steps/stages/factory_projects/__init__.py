"""Stage factory_projects: the namespaces, quotas and priorities of a factory's projects, and what developers may do in them."""
