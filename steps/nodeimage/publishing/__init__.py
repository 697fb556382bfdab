"""Node images in the release folders of boot servers: published, verified, rolled back and listed."""
