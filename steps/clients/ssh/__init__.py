"""SSH access to hosts: configuration, jump hosts, HTTP proxies, and trusted host keys."""
