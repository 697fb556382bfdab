"""Use case of `bringup gitops check`: read a user's tree, render its charts, check it."""
