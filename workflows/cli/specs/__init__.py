"""Commands about a spec before anything runs, and the code behind them."""
