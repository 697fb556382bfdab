"""Node images before a build is submitted: image spec, recipes, locks and plan."""
