"""Node images before submit: spec, recipes, locks and plan."""
