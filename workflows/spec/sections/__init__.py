"""The sections of a spec as frozen models, each with the rules that concern it alone."""
