"""Makes one layer of an image: its packages, files, commands and users, equal wherever and whenever it is made."""
