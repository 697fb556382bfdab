"""Requests of the simulator to the API server, the kinds of objects that it uses, and its cache of them."""
