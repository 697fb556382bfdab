"""Commands about runs and schedules on Argo, and the code behind them."""
