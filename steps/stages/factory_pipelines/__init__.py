"""Stage factory_pipelines: the released pipelines of a factory are installed as they were released, with their schedules."""
