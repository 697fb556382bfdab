"""How SSH reaches hosts: its configuration, jump hosts, HTTP proxies, and whose keys it believes."""
