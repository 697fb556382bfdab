"""Programs that build packages, behind one interface."""
