"""Git repositories: fetch, read, check out, commit, push. The only folder that uses dulwich."""
