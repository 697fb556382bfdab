"""Spec and catalog resolved into a plan: pure, and the same input gives the same bytes."""
