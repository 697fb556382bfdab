"""Git repositories: fetched, read, laid into a folder, written. The only user of dulwich."""
