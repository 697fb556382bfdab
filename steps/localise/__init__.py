"""Localisation of faulty nodes, rails, pairs and paths: which tests to run next, and which parts are bad. Pure."""
