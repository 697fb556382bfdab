"""Readings: recognition of a captured output of any tool, and the judgement that its text alone allows."""
