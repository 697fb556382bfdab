"""Git repositories: fetched, read, checked out and written. The only user of dulwich."""
