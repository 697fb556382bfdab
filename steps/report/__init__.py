"""Reports of a run, made from its evidence: terminal, HTML, JSON, JUnit, timeline; and verification of a sealed run."""
