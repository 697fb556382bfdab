"""The image of the pods that run steps."""
