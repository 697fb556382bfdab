"""Build the images of pods: the step image, and the builder image on top of it."""
