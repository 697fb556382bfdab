"""From hostile text to plain data and models, and from errors of a parser to errors that a user can act on."""
