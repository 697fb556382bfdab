"""Evidence → what people and machines read: terminal, HTML, JSON, JUnit, timeline; and the check that nothing was changed."""
