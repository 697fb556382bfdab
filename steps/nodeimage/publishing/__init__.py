"""Published node images on boot servers."""
