"""Tests of an image without a boot."""
