"""Tests an image without booting it."""
