"""Commands about runs and schedules on Argo, and what they call."""
