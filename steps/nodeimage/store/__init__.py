"""Image store: folders that appear complete or not at all, and the external programs whose output fills them."""
